"""Rendered kernel -> program for this machine's processor: compiler, flags, and what it depends on."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path
from typing import Protocol

from harness.errors import CompileError, ToolError
from harness.key import digest
from harness.model import Source
from harness.processes import run_tool
from harness.render import HOST_HEADERS

RUNTIME = Path(__file__).resolve().parent / "twin_runtime"
KIND = "twin"  # of entries in the cache
_PARTS = ("schedule.cpp", "memory.cpp", "hooks.cpp", "wavefronts.cpp", "tensor_core.cpp", "main.cpp")
_COMPILERS = ("g++", "clang++")

# Fixed low addresses, so that a place in the kernel fits into 32 bits. No contraction: the kernel says what
# is rounded once and what twice.
_COMMON = (
    "-std=c++17",
    "-fno-pie",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    f"-I{HOST_HEADERS}",
    f"-I{RUNTIME}",
)
# -fsanitize=thread makes the compiler call a function before each load and store; the runtime has them.
_KERNEL = ("-O1", "-g1", "-fsanitize=thread", "-fno-exceptions", "-fno-optimize-sibling-calls", "-w")
_GCC_ONLY = ("--param=tsan-instrument-func-entry-exit=0",)
_ERROR = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.*)$", re.MULTILINE
)


class Store(Protocol):
    """What the twin asks of a cache."""

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes kept under a key, or None."""

    def put(self, kind: str, key: str, data: bytes) -> object:
        """Keep bytes under a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C++ compiler of this machine and what it says its version is."""

    path: str
    version: str
    link_flags: tuple[str, ...] = ()

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """Flags for a kernel's text."""
        gcc = () if "clang" in self.version.lower() else _GCC_ONLY
        return (*_COMMON, *_KERNEL, *gcc)


@remember
def find_compiler() -> Compiler | str:
    """The compiler to use, or the reason why kernels cannot be run here."""
    if sys.platform != "linux":
        return f"the CPU twin runs on Linux only, this is {sys.platform}"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"the CPU twin runs on x86-64 and aarch64 only, this is {platform.machine()}"
    for name in _COMPILERS:
        path = shutil.which(name)
        if path:
            said = run_tool([path, "--version"], capture_output=True, text=True).stdout
            # Where there is gold, linking takes a third of the time.
            gold = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
            return Compiler(path=path, version=said.partition("\n")[0], link_flags=("-no-pie", *gold))
    return f"no C++ compiler found ({' or '.join(_COMPILERS)}): install g++"


def compile_twin(source: Source, cache: Store | None) -> bytes:
    """The program that runs a kernel.

    Raises CompileError with the place in the template, ToolError without a compiler.
    """
    compiler = find_compiler()
    if isinstance(compiler, str):
        raise ToolError(compiler)
    key = digest(
        source.text,
        source.entry,
        compiler.version,
        *compiler.kernel_flags,
        *compiler.link_flags,
        *runtime_texts(),
    )
    found = cache.get(KIND, key) if cache else None
    if found is not None:
        return found
    runtime = _runtime_object(compiler, cache)
    with tempfile.TemporaryDirectory(prefix="twin-") as name:
        program = _compile_kernel(compiler, source, runtime, Path(name))
    if cache:
        cache.put(KIND, key, program)
    return program


def runtime_texts() -> tuple[str, ...]:
    """Names and texts of the runtime and of the host headers."""
    files = [*sorted(RUNTIME.iterdir()), *sorted(HOST_HEADERS.iterdir())]
    return tuple(
        text for file in files if file.is_file() for text in (file.name, file.read_text(encoding="utf-8"))
    )


def _compile_kernel(compiler: Compiler, source: Source, runtime: bytes, folder: Path) -> bytes:
    kernel, unit = folder / f"{source.entry}.cu", folder / "unit.cpp"
    kernel.write_text(source.text, encoding="utf-8")
    unit.write_text(
        f'#include "{kernel.name}"\n#include "entry.h"\nTWIN_ENTRY({source.entry})\n', encoding="utf-8"
    )
    done = _call(compiler, [*compiler.kernel_flags, "-c", str(unit), "-o", "unit.o"], folder)
    if done.returncode != 0:
        raise _compile_error(source, kernel.name, done.stderr)
    (folder / "runtime.o").write_bytes(runtime)
    done = _call(compiler, [*compiler.link_flags, "unit.o", "runtime.o", "-o", "program"], folder)
    if done.returncode != 0:
        raise CompileError(f"{source.case}: the CPU twin cannot be linked", detail=done.stderr)
    return (folder / "program").read_bytes()


def _runtime_object(compiler: Compiler, cache: Store | None) -> bytes:
    flags = ("-O2", *_COMMON)
    key = digest("runtime", compiler.version, *flags, *runtime_texts())
    found = cache.get(KIND, key) if cache else None
    if found is None:
        found = _compile_runtime(compiler, flags, key)
        if cache:
            cache.put(KIND, key, found)
    return found


@remember
def _compile_runtime(compiler: Compiler, flags: tuple[str, ...], key: str) -> bytes:
    """The runtime as one object file; `key` stands for its text."""
    with tempfile.TemporaryDirectory(prefix="twin-") as name:
        sources = [str(RUNTIME / part) for part in _PARTS]
        done = _call(compiler, [*flags, "-r", "-nostdlib", *sources, "-o", "runtime.o"], Path(name))
        if done.returncode != 0:
            raise ToolError("the CPU twin's runtime does not compile here", detail=done.stderr)
        return (Path(name) / "runtime.o").read_bytes()


def _call(compiler: Compiler, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return run_tool([compiler.path, *arguments], cwd=folder, capture_output=True, text=True)


def _compile_error(source: Source, file: str, log: str) -> CompileError:
    """The compiler's first error, with its place in the template where it lies in the kernel."""
    hit = _ERROR.search(log)
    if not hit:
        return CompileError(f"{source.case}: the host compiler refused the kernel", detail=log)
    place, line = Path(hit["file"]).name, int(hit["line"])
    if place == file and line <= len(source.line_map):
        template, template_line = source.line_map[line - 1]
        return CompileError(
            f"templates/{template}:{template_line}: {hit['message']} ({file}:{line}, host)", detail=log
        )
    return CompileError(f"{place}:{line}: {hit['message']}", detail=log)
