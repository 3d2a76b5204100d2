"""Rendered text -> cubin through NVRTC (cuda.core); no driver, no GPU. Errors name the template's line.

Nothing is measured as PTX: a cubin of the same CUDA major version loads on an older driver, PTX does not.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.build.toolkit import Toolkit, nvrtc_module, supported_archs, toolkit
from harness.errors import AblationError, CompileError, NotSupportedError, ToolError, UsageError
from harness.model import Source

__all__ = ["Compiled", "Toolkit", "check_arch", "compile_cubin", "supported_archs", "toolkit"]

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
DEVICE_HEADERS = _TEMPLATES / "device"

# Part of every cache key: what is passed to NVRTC besides the architecture and a caller's own options.
BASE_OPTIONS = ("-std=c++17", "--no-source-include", "--no-cache", "-Xptxas=-v")
OPTION_FORMS = (
    "-DNAME",
    "-DNAME=VALUE",
    "--maxrregcount=N",
    "--use_fast_math",
    "-lineinfo",
    "-Xptxas=OPTION",
)

_ARCH = re.compile(r"^sm_([0-9]{2,3})[af]?$")
_PLACE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>[0-9]+)\): (?P<what>(?:catastrophic )?error.*)$", re.MULTILINE
)
_PTXAS = re.compile(r"^ptxas\b.*?error\s*: (?P<what>.*)$", re.MULTILINE)
_UNSUPPORTED = re.compile(r"requires \.target|not supported on \.target|cannot be compiled for architecture")
_TIME_LINE = re.compile(r"^.*Compile time =.*\n?", re.MULTILINE)
_HEX = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A whole cubin, byte for byte, and the log of its compile (registers, spills, notes)."""

    cubin: bytes
    log: str


def check_arch(arch: str) -> None:
    """UsageError for a string that names no real architecture, NotSupportedError for one NVRTC lacks."""
    known = supported_archs()
    if arch in known:
        return
    choices = f"this NVRTC ({toolkit().version}) knows {', '.join(known)}"
    if arch.startswith("compute_"):
        raise UsageError(
            f"{arch} is a virtual architecture and gives no machine code: use sm_{arch[8:]}; {choices}"
        )
    if _ARCH.match(arch):
        raise NotSupportedError(f"NVRTC cannot compile for {arch}; {choices}")
    raise UsageError(f"{arch!r} is no architecture: write it as sm_90a; {choices}")


def compile_cubin(
    source: Source,
    arch: str,
    *,
    options: Sequence[str] = (),
    include_dir: Path | None = DEVICE_HEADERS,
    saved: Path | None = None,
) -> Compiled:
    """Compile a rendered kernel for a real architecture.

    Args:
        source: the rendered text with its line map.
        arch: e.g. "sm_90a"; exactly what NVRTC is told.
        options: extra options, in one of OPTION_FORMS.
        include_dir: where `#include "..."` is looked up; None for a text without includes.
        saved: the file that holds the rendered text, named in errors.

    Raises:
        UsageError: the architecture's spelling or an option is not one there is.
        NotSupportedError: NVRTC does not know the architecture, or the architecture lacks an instruction.
        CompileError: NVRTC or ptxas refused the text; places are those of the template.
        ToolError: the compiler library is missing.
    """
    check_arch(arch)
    tools = toolkit()
    arguments = _arguments(source.entry, arch, options, include_dir, tools)
    program, program_options, failure = nvrtc_module()
    log = io.StringIO()
    try:
        made = program(source.text, "c++", program_options(**arguments)).compile("cubin", logs=log)
    except failure as error:
        raise _explain(_clean(str(error)), source, arch, include_dir, saved, tools) from error
    cubin = bytes(made.code)
    if not cubin:
        raise ToolError(f"{source.case}: NVRTC {tools.version} returned an empty cubin for {arch}")
    return Compiled(cubin=cubin, log=_clean(log.getvalue()))


def _arguments(
    entry: str, arch: str, options: Sequence[str], include_dir: Path | None, tools: Toolkit
) -> dict[str, Any]:
    """Keyword arguments of cuda.core's ProgramOptions."""
    arguments: dict[str, Any] = {
        "name": f"{entry}.cu",
        "arch": arch,
        "std": "c++17",
        "no_source_include": True,
        # NVRTC's own cache answers without a log, and the log is what tells the registers.
        "no_cache": True,
    }
    folders = [str(folder) for folder in ((include_dir,) if include_dir else ()) + tools.include_dirs]
    if folders:
        arguments["include_path"] = folders
    ptxas = ["-v"]
    macros: list[str | tuple[str, str]] = []
    for option in options:
        name, _, value = option.partition("=")
        if option.startswith("-D") and len(name) > 2:
            macros.append((name[2:], value) if "=" in option else name[2:])
        elif name == "--maxrregcount" and value.isdecimal():
            arguments["max_register_count"] = int(value)
        elif option == "--use_fast_math":
            arguments["use_fast_math"] = True
        elif option == "-lineinfo":
            arguments["lineinfo"] = True
        elif name == "-Xptxas" and value:
            ptxas.append(value)
        else:
            raise UsageError(f"unknown compiler option {option!r}; there are {', '.join(OPTION_FORMS)}")
    if macros:
        arguments["define_macro"] = macros
    arguments["ptxas_options"] = ptxas
    return arguments


def _clean(log: str) -> str:
    """A log without NULs and without the line whose time differs at every compile."""
    return _TIME_LINE.sub("", log.replace("\0", "")).strip()


def _explain(
    log: str, source: Source, arch: str, include_dir: Path | None, saved: Path | None, tools: Toolkit
) -> AblationError:
    """NVRTC's refusal as the error of a case: the first fault in the message, the rest in the detail."""
    text = log.partition("compilation log:")[2].strip() or log
    where = f" (rendered text: {saved})" if saved else ""
    start = f"{source.case} for {arch}: "
    if "--gpu-architecture" in text or "--nv_arch" in text:
        known = ", ".join(supported_archs())
        return NotSupportedError(
            f"NVRTC {tools.version} cannot compile for {arch}; it knows {known}", detail=text
        )
    if "nvrtc-builtins" in text:
        return ToolError(f"{start}{_first_line(text)}: reinstall the nvidia-cuda-nvrtc wheel", detail=text)
    faults = list(_PLACE.finditer(text))
    if faults:
        first = faults[0]
        message = f"{start}{_template_place(first, source)}: {first['what']}{where}"
        shown = "\n\n".join(_show(fault, source, saved) for fault in faults[:8])
        if "open source file" in text:
            folders = (
                ", ".join(map(str, ((include_dir,) if include_dir else ()) + tools.include_dirs)) or "none"
            )
            shown += (
                f"\n\nfolders searched for headers: {folders}; NVRTC {tools.version} from {tools.nvrtc_path}"
            )
        return CompileError(message, detail=f"{shown}\n\n{text}")
    refused = _PTXAS.findall(text)
    what = _HEX.sub(lambda number: str(int(number[0], 16)), refused[0]) if refused else _first_line(text)
    if any(_UNSUPPORTED.search(line) for line in refused):
        return NotSupportedError(f"{start}{what}", detail=text)
    return CompileError(f"{start}{what}{where}", detail=text)


def _template_place(fault: re.Match[str], source: Source) -> str:
    """`templates/file:line` of a fault in the rendered text or in a header of ours."""
    file, line = fault["file"], int(fault["line"])
    if file == f"{source.entry}.cu" and 1 <= line <= len(source.line_map):
        template, template_line = source.line_map[line - 1]
        return f"templates/{template}:{template_line}"
    path = Path(file)
    if "templates" in path.parts:
        start = len(path.parts) - 1 - path.parts[::-1].index("templates")
        return f"{'/'.join(path.parts[start:])}:{line}"
    return f"{file}:{line}"


def _show(fault: re.Match[str], source: Source, saved: Path | None) -> str:
    """One fault: its place, the template's line, the rendered line, and the place in the saved file."""
    file, line = fault["file"], int(fault["line"])
    shown = [f"{_template_place(fault, source)}: {fault['what']}"]
    if file != f"{source.entry}.cu":
        return "\n".join([*shown, f"  header:   {_line_of(Path(file), line)}"])
    if 1 <= line <= len(source.line_map):
        template = _template_file(source.line_map[line - 1][0])
        if template is not None:
            shown.append(f"  template: {_line_of(template, source.line_map[line - 1][1])}")
    rendered = source.text.split("\n")
    if 1 <= line <= len(rendered):
        shown.append(f"  rendered: {rendered[line - 1].strip()}")
    if saved:
        shown.append(f"  saved:    {saved}:{line}")
    return "\n".join(shown)


def _template_file(name: str) -> Path | None:
    path = _TEMPLATES / name
    return path if path.is_file() else None


def _line_of(path: Path, line: int) -> str:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return "(cannot be read)"
    return lines[line - 1].strip() if 1 <= line <= len(lines) else "(no such line)"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "no log")
