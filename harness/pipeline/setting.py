"""Where a run happens, as a record file's header says it: suite, command, machine, GPU, tools."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__
from harness.build.toolkit import toolkit
from harness.gpu.facts import GpuFacts
from harness.plan import Plan
from harness.store import new_run

ROOT = Path(__file__).resolve().parent.parent.parent


def header(plan: Plan, facts: GpuFacts | None, reason_not_timed: str | None) -> dict[str, Any]:
    """The header line of one record file; a fresh run id each time."""
    run, started = new_run()
    return {
        "run": run,
        "started": started,
        "suite": suite(),
        "command": plan.command,
        "seed": plan.seed,
        "environment": environment(facts),
        "reason_not_timed": reason_not_timed,
    }


def suite() -> dict[str, Any]:
    """Version of the suite, and the commit it runs from: a checkout's, or a git archive's (else None)."""
    commit = _git("rev-parse", "--short=12", "HEAD") or _archived()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "ablations", "harness", "templates")
    return {"version": __version__, "commit": commit, "dirty": None if changed is None else bool(changed)}


def environment(facts: GpuFacts | None) -> dict[str, Any]:
    """Versions of everything that can move a number; None where something is not there."""
    return {
        "gpu": facts.as_record() if facts else None,
        "driver": facts.driver if facts else None,
        "cuda_driver": facts.cuda_driver if facts else None,
        "nvrtc": toolkit().version,
        "cupy": facts.cupy if facts else _version("cupy-cuda13x"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _archived() -> str | None:
    """The commit that `git archive` wrote into the tree; the changes since then nobody knows."""
    try:
        node = (ROOT / ".git_archival.txt").read_text(encoding="utf-8").partition("node: ")[2].strip()
    except OSError:
        return None
    return node[:12] if node and "$" not in node else None


def _git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
