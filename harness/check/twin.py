"""The CPU twin: a rendered kernel, its text unchanged, compiled for the host, with real warps and barriers.

The kernel is compiled against `templates/host/ptx.cuh` in place of `templates/device/ptx.cuh` and linked
with the runtime in `twin_runtime/`. Each run is a process of its own with a time limit: a kernel that
crashes, hangs or deadlocks costs one answer. What the runtime finds comes back as faults, each with its
places; the numbers come back for a comparison with a reference, which is not made here.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from harness.check.twin_build import Store, compile_twin, find_compiler, runtime_texts
from harness.check.twin_places import Locator
from harness.errors import LaunchError
from harness.key import digest
from harness.model import Array, Launch, OutputSpec, Scalar, Source
from harness.processes import run_tool

__all__ = ["Fault", "TwinResult", "run_twin", "twin_available", "twin_version"]

SECONDS = 60.0  # a case of the suite takes well under one
_GRACE_SECONDS = 10.0  # past the limit that the process watches itself

Chip = Literal["hopper", "ampere"]
# Terms per addition, fraction bits, exponent of a zero with fp32 and with fp16 accumulators: tensor_core.cpp
# says what they mean. Ada adds as Ampere does, Blackwell as Hopper.
_TENSOR_CORES: Mapping[Chip, tuple[int, int, int, int]] = {
    "hopper": (16, 25, -133, -22),
    "ampere": (8, 24, -132, -21),
}
_DTYPES = {"float16": np.float16, "bfloat16": np.uint16, "float32": np.float32}
_WORDS_PER_CTA_STAMP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something the kernel must not do.

    Args:
        kind: race, in flight, uninitialised, bounds, alignment, unwritten, written twice, input written,
            divergence, barrier, deadlock, pending, arguments, crash or timeout.
        message: what happened, where, and how often; one line that holds both places.
        place: `templates/parts/tile.cuh:35 (attention.cu:140)`, then `<- ` its callers; or empty.
        other_place: the place of the other access or thread, if there is one.
        times: how often the same happened at the same places.
    """

    kind: str
    message: str
    place: str = ""
    other_place: str = ""
    times: int = 1

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinResult:
    """What one launch computed and did.

    Args:
        outputs: arrays by name, as a GPU would leave them (bfloat16 as uint16 bits); 0xFF bytes where nothing
            was written.
        faults: empty for a sound kernel.
        wavefronts: passes through shared memory that ldmatrix, the copies and plain accesses made.
        ideal_wavefronts: those they would have made with no bank conflict.
        wavefronts_by_access: (made, ideal) by `matrix_loads`, `copies` and `plain`.
        conflicts: a line for each place whose accesses made more passes than they need, the worst first; a
            slow kernel, not a wrong one.
        seconds: wall time of the process.
    """

    outputs: Mapping[str, Array]
    faults: tuple[Fault, ...]
    wavefronts: int
    ideal_wavefronts: int
    seconds: float
    wavefronts_by_access: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()


def twin_available() -> str | None:
    """None where kernels can be run on the CPU, else the reason why not."""
    compiler = find_compiler()
    return compiler if isinstance(compiler, str) else None


def twin_version() -> str:
    """Digest of everything but the kernel that decides what a run says: runtime, host header, compiler."""
    return digest(str(find_compiler()), *runtime_texts())


def run_twin(
    source: Source,
    launch: Launch,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, OutputSpec],
    cache: Store | None,
    *,
    chip: Chip = "hopper",
    seconds: float = SECONDS,
) -> TwinResult:
    """Run one launch of a kernel on the CPU.

    Raises CompileError when the compiler refuses the text, ToolError when there is no compiler, LaunchError
    when the process died without an answer. A kernel at fault does not raise: see TwinResult.faults.

    Args:
        cache: where compiled kernels are kept; None compiles anew.
        chip: whose tensor core's rounding is used.
        seconds: limit for the run; past it the fault `timeout` says where the kernel was.
    """
    program = compile_twin(source, cache)
    with tempfile.TemporaryDirectory(prefix="twin-") as name:
        folder = Path(name)
        executable = folder / "kernel"
        executable.write_bytes(program)
        executable.chmod(0o700)
        _write_request(folder, launch, inputs, outputs, chip, seconds)
        start = time.perf_counter()
        _run(executable, folder, source, seconds)
        elapsed = time.perf_counter() - start
        return _read_answer(folder, executable, source, outputs, elapsed)


def _write_request(
    folder: Path,
    launch: Launch,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, OutputSpec],
    chip: Chip,
    seconds: float,
) -> None:
    lines = [
        "grid {} {} {}".format(*launch.grid),
        f"block {launch.block}",
        f"shared {launch.shared_bytes}",
        f"seconds {seconds}",
        "tensor_core {} {} {} {}".format(*_TENSOR_CORES[chip]),
        f"buffer stamps scratch {launch.ctas * _WORDS_PER_CTA_STAMP * 8}",
    ]
    for name, array in inputs.items():
        lines.append(f"buffer {name} input {array.nbytes}")
        (folder / f"{name}.in").write_bytes(np.ascontiguousarray(array).tobytes())
    for name, spec in outputs.items():
        lines.append(f"buffer {name} output {_output_bytes(spec)}")
    known = {"stamps", *inputs, *outputs}
    for argument in launch.arguments:
        if isinstance(argument, str) and argument not in known:
            raise LaunchError(f"the launch names {argument!r}; the buffers are {', '.join(sorted(known))}")
        lines.append("argument " + (f"buffer {argument}" if isinstance(argument, str) else _scalar(argument)))
    (folder / "request").write_text("\n".join(lines) + "\n", encoding="ascii")


def _output_bytes(spec: OutputSpec) -> int:
    return int(np.prod(spec.shape)) * np.dtype(_DTYPES[spec.dtype]).itemsize


def _scalar(scalar: Scalar) -> str:
    """The bits of a by-value argument, as a number."""
    formats = {"i32": "<i", "u32": "<I", "u64": "<Q", "f32": "<f"}
    value = float(scalar.value) if scalar.kind == "f32" else int(scalar.value)
    bits = int.from_bytes(struct.pack(formats[scalar.kind], value), "little")
    return f"{'long' if scalar.kind == 'u64' else 'word'} {bits}"


def _run(executable: Path, folder: Path, source: Source, seconds: float) -> None:
    try:
        done = run_tool(
            [executable, folder],
            capture_output=True,
            text=True,
            timeout=seconds + _GRACE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{source.case}: the CPU twin did not end within {seconds:g} s") from None
    if not (folder / "answer").is_file():
        raise LaunchError(f"{source.case}: the CPU twin died ({done.returncode})", detail=done.stderr)


def _read_answer(
    folder: Path, executable: Path, source: Source, outputs: Mapping[str, OutputSpec], elapsed: float
) -> TwinResult:
    faults: list[tuple[int, int, int, str, str]] = []
    accesses: list[tuple[str, int, int, int]] = []
    for line in (folder / "answer").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if word == "fault":
            head, _, message = rest.partition("\t")
            times, place, other, kind = head.split(" ", 3)
            faults.append((int(times), int(place, 16), int(other, 16), kind, message))
        elif word == "wavefronts":
            kind, made, ideal, place = rest.split()
            accesses.append((kind, int(made), int(ideal), int(place, 16)))
    addresses = [place for fault in faults for place in fault[1:3]] + [a[3] for a in accesses if a[1] > a[2]]
    locator = Locator(executable, source, addresses)
    by_access = {kind: _sum_of(accesses, kind) for kind in ("matrix_loads", "copies", "plain")}
    arrays = {}
    for name, spec in outputs.items():
        data = (folder / f"{name}.out").read_bytes()
        arrays[name] = np.frombuffer(data, _DTYPES[spec.dtype]).reshape(spec.shape)
    return TwinResult(
        outputs=arrays,
        faults=tuple(_fault(locator, *fault) for fault in faults),
        wavefronts=sum(made for made, _ in by_access.values()),
        ideal_wavefronts=sum(ideal for _, ideal in by_access.values()),
        seconds=elapsed,
        wavefronts_by_access=by_access,
        conflicts=_conflicts(locator, accesses),
    )


def _sum_of(accesses: list[tuple[str, int, int, int]], kind: str) -> tuple[int, int]:
    mine = [access for access in accesses if access[0] == kind]
    return sum(access[1] for access in mine), sum(access[2] for access in mine)


def _conflicts(locator: Locator, accesses: list[tuple[str, int, int, int]]) -> tuple[str, ...]:
    worst = sorted((a for a in accesses if a[1] > a[2]), key=lambda a: a[1] / a[2], reverse=True)
    lines = [
        f"bank conflicts: {kind} make {made / ideal:.2f} x the passes they need at {locator.place(place)}"
        for kind, made, ideal, place in worst
    ]
    return tuple(dict.fromkeys(lines))


def _fault(locator: Locator, times: int, place: int, other: int, kind: str, message: str) -> Fault:
    here, there = locator.place(place), locator.place(other)
    if kind in ("timeout", "crash"):  # the kernel's own line where it was there, else its last call
        here, there = here if ".cu:" in here else there, ""
    text = f"{kind}: {message}"
    if here:
        text += f"; at {here}"
    if there and there != here:
        text += f"; the other: {there}"
    if times > 1:
        text += f"; {times} times"
    return Fault(kind=kind, message=text, place=here, other_place=there, times=times)
