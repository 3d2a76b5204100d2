"""Architectures: what a user may write, what it means, and which one a GPU's kernels are compiled for."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from harness.chips.data import all_limits
from harness.chips.facts import Capability, plain_arch, spell
from harness.errors import UsageError

DEFAULT_ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A real architecture a cubin is made for: "sm_90a" is cc (9, 0) with suffix "a"."""

    arch: str
    cc: Capability
    suffix: str

    def __str__(self) -> str:
        return self.arch


def target_archs() -> tuple[str, ...]:
    """Every architecture the suite can compile for, in ascending order: sm_90, sm_90a, ..."""
    known = (limits for limits in all_limits().values() if limits.target)
    return tuple(plain_arch(limits.cc) + suffix for limits in known for suffix in ("", *limits.suffixes))


def arch_of(cc: Capability) -> str:
    """The architecture that a GPU of this compute capability gets its kernels for: sm_90a for (9, 0).

    The `a` variant where there is one: only that reaches every tensor instruction. UsageError for a compute
    capability that is not a target.
    """
    limits = all_limits().get(cc)
    if limits is None or not limits.target:
        raise UsageError(_refusal(spell(cc), cc))
    return plain_arch(cc) + ("a" if "a" in limits.suffixes else "")


def usual_archs(supported: Collection[str]) -> tuple[str, ...]:
    """The architectures of DEFAULT_ARCHS that this NVRTC compiles for, in order; UsageError for none."""
    archs = tuple(arch for arch in DEFAULT_ARCHS if arch in supported)
    if not archs:
        raise UsageError(f"this NVRTC compiles for none of {' '.join(DEFAULT_ARCHS)}; name a --target")
    return archs


def parse_target(text: str, supported: Collection[str] | None = None) -> Target:
    """The architecture a user named: sm_90a, 90a, compute_90a; sm_90, 90, compute_90; 9.0.

    A compute capability with a dot means the GPU, so 9.0 is what `arch_of` says (sm_90a); everything else
    keeps the suffix it has or has not. `compute_` yields the real architecture, PTX being never measured.
    `supported` narrows the choice to what the NVRTC at hand compiles for. UsageError lists the valid names.
    """
    word = text.strip().lower()
    dotted = re.fullmatch(r"([1-9][0-9]?)\.([0-9])([af]?)", word, re.ASCII)
    joined = re.fullmatch(r"(?:sm_|compute_)?([1-9][0-9]?)([0-9])([af]?)", word, re.ASCII)
    match = dotted or joined
    if match is None:
        raise UsageError(f"{text!r} is not an architecture; {_choices(supported)}")
    cc, suffix = (int(match[1]), int(match[2])), match[3]
    limits = all_limits().get(cc)
    if limits is None or not limits.target:
        raise UsageError(_refusal(text, cc, supported))
    arch = arch_of(cc) if dotted and not suffix else plain_arch(cc) + suffix
    if arch not in _known(supported):
        raise UsageError(f"there is no architecture {arch}; {_choices(supported)}")
    return Target(arch=arch, cc=cc, suffix=arch.removeprefix(plain_arch(cc)))


def _known(supported: Collection[str] | None) -> tuple[str, ...]:
    return tuple(arch for arch in target_archs() if supported is None or arch in supported)


def _choices(supported: Collection[str] | None) -> str:
    return f"choose one of {', '.join(_known(supported))} or a compute capability such as 8.9"


def _refusal(text: str, cc: Capability, supported: Collection[str] | None = None) -> str:
    if cc < (8, 0):
        need = "mma.sync.m16n8k16 and cp.async need sm_80 or newer"
        return f"{text!r} is not supported here: {need}; {_choices(supported)}"
    return f"nothing is known of {text!r}; {_choices(supported)}"
