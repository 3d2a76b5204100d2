"""What a user gets from a clone or a wheel: the lock, the Makefile's commands, the files inside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    found = [
        re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line) for line in lines if line[:1].isalnum()
    ]
    assert all(found), f"{name}: every line is name==version"
    return {re.sub(r"[-_.]+", "-", hit[1]).lower(): hit[2] for hit in found if hit}


def needed(specs: list[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[; ]", spec)[0]).lower() for spec in specs}


def test_the_locks_pin_all_that_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert needed(project["dependencies"]) <= set(run)
    assert needed(project["optional-dependencies"]["dev"]) <= set(dev)
    assert not set(run) & set(dev)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "Makefile", "pyproject.toml"])
def test_no_registry_and_no_local_path_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "file:" not in text


def make(*arguments: str) -> str:
    # The tests may themselves run under make, which hands its own variables down.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_help_is_the_default_goal_and_lists_every_public_target() -> None:
    text = make()
    for target in ("setup", "ablate", "test", "test-gpu", "lint", "publish", "check", "clean"):
        assert re.search(rf"^  make {target} +\S", text, re.MULTILINE), target
    assert all(len(line) <= 120 for line in text.splitlines())


def test_ablate_without_venv_is_one_command_and_no_pip() -> None:
    text = make(
        "-n", "ablate", "VENV=off", "PYTHON=python9", "STUDY=a b", "TARGETS=sm_89 9.0", "ARGS=--dry-run"
    )
    assert text == "python9 -m harness run a b --target sm_89 --target 9.0 --dry-run\n"


def test_set_up_is_done_once_and_again_when_the_lock_changes(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    stamp = venv / "run.stamp"
    stamp.touch()
    os.utime(stamp, (2e9, 2e9))
    assert "pip" not in make("-n", "ablate", f"VENV={venv}")
    os.utime(stamp, (1e9, 1e9))
    assert "-r requirements.lock" in make("-n", "ablate", f"VENV={venv}")


def test_ci_script_is_executable_and_parses() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert "set -euo pipefail" in script.read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling: make setup installs it")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_data_file(wheel: Path) -> None:
    kinds = {".toml", ".json", ".cuh", ".j2", ".py", ".h", ".hpp"}
    here = {
        path.relative_to(ROOT)
        for folder in ("harness", "ablations", "templates")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and "__pycache__" not in path.parts
    }
    assert {p.suffix for p in here} >= {".toml", ".json", ".cuh", ".j2"}
    assert [path for path in sorted(here) if not (wheel / path).is_file()] == []


def test_the_installed_command_lists_and_renders_away_from_the_clone(wheel: Path, tmp_path: Path) -> None:
    entry = next(wheel.glob("*.dist-info")) / "entry_points.txt"
    assert "ablate = harness.cli:main" in entry.read_text()
    code = (
        "import sys; from harness.cli import main; import harness, ablations; print(harness.__file__); "
        "name = next(iter(ablations.load())); from harness.cases import default_cases; "
        "case = default_cases(ablations.load()[name])[0]; "
        "sys.exit(main(['list']) or main(['show', str(case), '--source']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
    assert "__global__" in done.stdout


def test_markers_are_registered() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert {marker.partition(":")[0] for marker in options["markers"]} == {"gpu", "slow"}
    assert "--strict-markers" in options["addopts"]
    assert options["filterwarnings"][0] == "error"
