"""Case -> rendered kernel: the only Jinja environment, strict, with a map from each line to its template.

Jinja keeps its standard delimiters. A case's context is its levels, its configuration, the perturbation
number and one line of provenance; nothing else reaches a template. Headers under templates/device are
joined by #include, never by Jinja."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import jinja2
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from harness.errors import RenderError
from harness.key import digest
from harness.model import Case, Source, Study

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
DEVICE_HEADERS = TEMPLATES / "device"
HOST_HEADERS = TEMPLATES / "host"

_COMMENT_COLUMNS = 110
_MARK = re.compile("\x02([^\x02\x03]*):([0-9]+)\x03")
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# What C++ may hold but Jinja would take for itself: PTX operand lists, nested braces, brace + macro argument.
_TRAPS = (
    (re.compile(r"\{%\s*[0-9]"), "'{%0' is a Jinja tag: PTX belongs into templates/device/ptx.cuh"),
    (re.compile(r"\{\{[^{}]*[,;][^{}]*\}"), "'{{a, b}' is a Jinja expression: write '{ {a, b} }'"),
    (re.compile(r"\{#\s*[A-Za-z_]\w*\s*,"), "'{#' opens a Jinja comment: write '{ #'"),
    (re.compile(r"\{\{\s*[-+.&'\"0-9]"), "'{{0' is a Jinja expression: write '{ {0} }'"),
    (re.compile(r"\}\}[fFuUlL]\b"), "a suffix after '}}' spoils an int (2f): write float({{ x }})"),
)


class _LineMarks(Extension):
    """Ends each line of template text with a mark that `render` strips: the line map leaves no trace."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        return self._marked(stream)

    def _marked(self, stream: TokenStream) -> Iterator[Token]:
        name = stream.name or "?"
        for token in stream:
            if token.type != "data":
                yield token
                continue
            lines = token.value.split("\n")
            marked = [f"{line}\x02{name}:{token.lineno + i}\x03" for i, line in enumerate(lines[:-1])]
            yield Token(token.lineno, "data", "\n".join([*marked, lines[-1]]))


def _literal(value: object) -> object:
    """What `{{ }}` may print: C++ literals only, so that True, None or inf never reach a compiler."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str | jinja2.Undefined):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise RenderError(f"{value!r} is no C++ literal: a template prints bool, int, str or a finite float")


class _Loader(jinja2.FileSystemLoader):
    """Reads templates and refuses text that Jinja would misread, with file and line."""

    def get_source(self, environment: jinja2.Environment, template: str):  # type: ignore[no-untyped-def]
        try:
            source, path, current = super().get_source(environment, template)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise RenderError(f"templates/{template}:{line}: not UTF-8: {error.reason}") from error
        for pattern, advice in _TRAPS:
            hit = pattern.search(source)
            if hit:
                line = source.count("\n", 0, hit.start()) + 1
                raise RenderError(f"templates/{template}:{line}: {advice}")
        return source, path, current


def environment(folder: Path = TEMPLATES) -> jinja2.Environment:
    """The one Jinja environment: strict names, trimmed block lines, C++ literals, line marks."""
    return jinja2.Environment(
        loader=_Loader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_literal,
        extensions=[_LineMarks],
    )


@cache
def _shared_environment() -> jinja2.Environment:
    return environment()


def context(study: Study, case: Case, perturbation: int = 0) -> dict[str, object]:
    """What the template of `case` may use."""
    levels = ", ".join(f"{name}={level}" for name, level in {**case.levels, **case.configuration}.items())
    provenance = textwrap.wrap(f"{study.name}: {levels}", _COMMENT_COLUMNS, subsequent_indent="    ")
    return {
        **case.levels,
        **case.configuration,
        "entry": study.name,
        "perturbation": perturbation,
        "provenance": "\n// ".join(provenance),
    }


def render(study: Study, case: Case, perturbation: int = 0, *, folder: Path = TEMPLATES) -> Source:
    """The kernel of a case. Raises RenderError with template file and line."""
    jinja = _shared_environment() if folder == TEMPLATES else environment(folder)
    try:
        marked = jinja.get_template(study.template).render(context(study, case, perturbation))
    except jinja2.TemplateSyntaxError as error:
        place = f"{_relative(error.name or study.template, folder)}:{error.lineno}"
        raise RenderError(f"templates/{place}: {error.message}") from error
    except jinja2.TemplateNotFound as error:
        raise RenderError(f"{case}: no template or part templates/{error.name}") from error
    except jinja2.UndefinedError as error:
        raise RenderError(f"{_place(error, folder)}: {error.message}") from error
    except RenderError as error:
        if error.message.startswith("templates/"):
            raise
        raise RenderError(f"{_place(error, folder)}: {error.message}") from error
    text, line_map = _strip_marks(marked, study.template)
    return Source(
        case=case, entry=study.name, text=text, line_map=line_map, digest=source_digest(text, folder)
    )


def source_digest(text: str, folder: Path = TEMPLATES) -> str:
    """SHA-256 of a rendered text and of the device headers that it includes, however deep."""
    headers = included_headers(text, folder / "device")
    return digest(text, *(part for name, body in headers.items() for part in (name, body)))


def included_headers(text: str, folder: Path) -> dict[str, str]:
    """Header name -> text for every #include "..." found under `folder`, transitively, in order of first
    mention."""
    found: dict[str, str] = {}
    waiting = _INCLUDE.findall(text)
    while waiting:
        name = waiting.pop(0)
        path = folder / name
        if name not in found and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            waiting += _INCLUDE.findall(found[name])
    return found


def _strip_marks(marked: str, template: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Text without marks, and (template, line) of each of its lines; an unmarked line takes its neighbour's
    place."""
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    place = (template, 1)
    for line in marked.split("\n"):
        marks = _MARK.findall(line)
        if marks:
            place = (marks[-1][0], int(marks[-1][1]))
        lines.append(_MARK.sub("", line))
        places.append(place)
    if lines and not lines[-1]:
        places.pop()
    return "\n".join(lines), tuple(places)


def _relative(name: str, folder: Path) -> str:
    """A template's name; Jinja's lexer gives the whole path in its place."""
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name


def _place(error: BaseException, folder: Path) -> str:
    """`templates/file:line` of the template frame deepest in an exception's traceback."""
    place, frame = "templates", error.__traceback__
    while frame is not None:
        path = Path(frame.tb_frame.f_code.co_filename)
        if path.is_relative_to(folder):
            place = f"templates/{path.relative_to(folder)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
