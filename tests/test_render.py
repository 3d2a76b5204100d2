"""Rendering: strict names, C++ literals only, a place for every line, and text that Jinja would misread."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import make_case
from harness.errors import RenderError
from harness.model import Case, Study, Switch, Values
from harness.render import TEMPLATES, included_headers, render, source_digest
from tests.studies import INSTRUCTION, PAIRS, name_of

PART = Switch(name="part", levels=("kept", "stripped"), baseline="kept", label="part", meaning="a part")


def study_of(folder: Path, text: str, **parts: str) -> Study:
    """A study whose template holds this text, with parts/<name>.cuh beside it."""
    (folder / "parts").mkdir(exist_ok=True)
    (folder / "t.cu.j2").write_text(text)
    for name, part in parts.items():
        (folder / "parts" / f"{name}.cuh").write_text(part)
    return replace(INSTRUCTION, name="t", template="t.cu.j2", switches=(PART,), constraint=lambda *_: None)


def text_of(
    folder: Path, text: str, *, part: str = "kept", numbers: Values | None = None, **parts: str
) -> str:
    return rendered(study_of(folder, text, **parts), folder, part, numbers)


def rendered(study: Study, folder: Path, part: str = "kept", numbers: Values | None = None) -> str:
    return render(study, case_of(study, part, numbers), folder=folder).text


def case_of(study: Study, part: str = "kept", numbers: Values | None = None) -> Case:
    return make_case(study, Values(part=part), numbers or Values(), set_name="full")


# ---- C43 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ('asm("mma ... {%0,%1,%2,%3}");', "PTX belongs into templates/device/ptx.cuh"),
        ("int t[2][2]={{0,1},{2,3}};", "write '{ {a, b} }'"),
        ("int t[1][1] = {{0}};", "write '{ {0} }'"),
        ("int t[1][1] = {{ -1 }};", "write '{ {0} }'"),
        ("#define X {#a, 1}", "write '{ #'"),
        ("float x = {{ part }}f;", "write float({{ x }})"),
    ],
)
@pytest.mark.parametrize("where", ["template", "part"])
def test_c43_text_that_jinja_would_misread_is_refused_with_file_and_line(
    tmp_path: Path, line: str, advice: str, where: str
) -> None:
    if where == "template":
        study, place = study_of(tmp_path, f"int a;\n\n{line}\n"), "templates/t.cu.j2:3"
    else:
        study = study_of(tmp_path, '{% include "parts/p.cuh" %}\n', p=f"int a;\n{line}\n")
        place = "templates/parts/p.cuh:2"
    with pytest.raises(RenderError) as caught:
        rendered(study, tmp_path)
    assert caught.value.message.startswith(place + ": ") and advice in caught.value.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('asm("{%rd1}");', "unexpected '}'"),
        ("int t[] = {{}};", "Expected an expression"),
        ("int t = {# never closed", "Missing end of comment tag"),
        ("{% if part %}", "end of template"),
    ],
)
def test_c43_other_misreadings_are_syntax_errors_with_file_and_line(
    tmp_path: Path, line: str, words: str
) -> None:
    with pytest.raises(RenderError, match=r"^templates/t\.cu\.j2:[23]: ") as caught:
        text_of(tmp_path, f"int a;\n{line}\n")
    assert words in caught.value.message


@pytest.mark.parametrize(
    "line",
    [
        "int t[2][2] = { {0, 1}, {2, 3} };",
        "#define X { #a, 1}",
        "if (a) { b(); }",
        "x = a % b; y = {a, b};",
        "struct S { int a; }; // {a}, 100 %",
    ],
)
def test_c43_cpp_text_with_a_blank_in_between_renders_as_it_is(tmp_path: Path, line: str) -> None:
    assert text_of(tmp_path, line + "\n") == line + "\n"


@pytest.mark.parametrize("where", ["template", "part", "block"])
def test_c43_a_name_that_is_not_given_is_named_with_its_place(tmp_path: Path, where: str) -> None:
    loop = "for (int i = 0; i < {{ iters }}; ++i)\n"
    text, place = {
        "template": ("\n" + loop, "templates/t.cu.j2:2"),
        "part": ('{% include "parts/p.cuh" %}\n', "templates/parts/p.cuh:3"),
        "block": (
            '{% extends "parts/p.cuh" %}\n{% block b %}\n\n' + loop + "{% endblock %}\n",
            "templates/t.cu.j2:4",
        ),
    }[where]
    part = "{% block b %}{% endblock %}\n" if where == "block" else "\n\n" + loop
    study = study_of(tmp_path, text, p=part)
    with pytest.raises(RenderError, match="'iters' is undefined") as caught:
        rendered(study, tmp_path)
    assert caught.value.message.startswith(place + ": ")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), None, [1], object()], ids=repr)
def test_c43_what_is_no_literal_of_cpp_is_refused(tmp_path: Path, value: object) -> None:
    study = study_of(tmp_path, "\nfloat x = float({{ number }});\n")
    with pytest.raises(RenderError, match=r"^templates/t\.cu\.j2:2: .* is no C\+\+ literal"):
        rendered(study, tmp_path, numbers=Values(number=value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [(2, "2"), (2.0, "2.0"), (0.1, "0.1"), (1e-30, "1e-30"), (True, "true"), (False, "false")],
)
def test_c43_numbers_are_written_exactly(tmp_path: Path, value: object, text: str) -> None:
    study = study_of(tmp_path, "x = {{ number }};\n")
    assert rendered(study, tmp_path, numbers=Values(number=value)) == f"x = {text};\n"  # type: ignore[arg-type]


def test_a_template_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    study = study_of(tmp_path, '{% include "parts/p.cuh" %}\n', p="int a;\n")
    (tmp_path / "parts" / "p.cuh").write_bytes(b"int a;\n\xff\n")
    with pytest.raises(RenderError, match=r"^templates/parts/p\.cuh:2: not UTF-8"):
        rendered(study, tmp_path)


def test_a_part_that_does_not_exist_is_named_with_the_case(tmp_path: Path) -> None:
    study = study_of(tmp_path, '{% include "parts/" ~ part ~ ".cuh" %}\n', kept="int kept;\n")
    assert rendered(study, tmp_path) == "int kept;\n"
    with pytest.raises(
        RenderError, match=r"^t/part=stripped: no template or part templates/parts/stripped\.cuh$"
    ):
        rendered(study, tmp_path, "stripped")


# ---- the line map --------------------------------------------------------------------------------------


def test_every_line_has_its_place(tmp_path: Path) -> None:
    text = '{# a\n comment #}\nint a;\n{% if part == "kept" %}\nint b;\n{% include "parts/p.cuh" %}\n'
    text += "{% endif %}\nint c;\n"
    source = render(study := study_of(tmp_path, text, p="int p;\nint q;\n"), case_of(study), folder=tmp_path)
    assert source.text == "int a;\nint b;\nint p;\nint q;\nint c;\n"
    assert source.line_map == (
        ("t.cu.j2", 3),
        ("t.cu.j2", 5),
        ("parts/p.cuh", 1),
        ("parts/p.cuh", 2),
        ("t.cu.j2", 8),
    )


@pytest.mark.parametrize(("study", "case"), PAIRS[::9], ids=name_of)
def test_the_line_map_of_a_real_case_points_at_its_text(study: Study, case: Case) -> None:
    source = render(study, case)
    lines = source.text.split("\n")[:-1]
    assert len(source.line_map) == len(lines)
    templates = {name: (TEMPLATES / name).read_text().split("\n") for name, _ in source.line_map}
    for line, (name, number) in zip(lines, source.line_map, strict=True):
        there = templates[name][number - 1]
        if "{" not in there and line.strip() and not line.startswith("// "):
            assert line == there


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(["int a;", "", "  b();", "{# note #}", "{% if part %}x;{% endif %}"]), max_size=12
    )
)
def test_any_template_has_as_many_places_as_lines(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    study = study_of(folder, "\n".join(words) + "\n")
    source = render(study, case_of(study), folder=folder)
    assert len(source.line_map) == len(source.text.splitlines())
    assert "\x02" not in source.text and "\x03" not in source.text
    numbers = [number for _, number in source.line_map]
    assert numbers == sorted(numbers)


# ---- the digest ----------------------------------------------------------------------------------------


def test_the_digest_covers_the_text_and_every_header_however_deep(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.mkdir()
    (device / "ptx.cuh").write_text('#include "deep.cuh"\n')
    (device / "deep.cuh").write_text('  #  include "ptx.cuh"\nint a;\n')
    (device / "other.cuh").write_text("int o;\n")
    text = '#include "ptx.cuh"\n#include <cstdint>\n#include "absent.cuh"\nint k;\n'
    assert list(included_headers(text, device)) == ["ptx.cuh", "deep.cuh"]
    before = source_digest(text, tmp_path)
    assert source_digest(text, tmp_path) == before != source_digest(text + "\n", tmp_path)
    (device / "other.cuh").write_text("int changed;\n")
    assert source_digest(text, tmp_path) == before
    (device / "deep.cuh").write_text('#include "ptx.cuh"\nint b;\n')
    assert source_digest(text, tmp_path) != before


def test_the_digest_of_a_case_changes_with_a_part_and_not_from_run_to_run(tmp_path: Path) -> None:
    study = study_of(tmp_path, '{% include "parts/p.cuh" %}\n', p="int a;\n")
    first = render(study, case_of(study), folder=tmp_path)
    assert render(study, case_of(study), folder=tmp_path) == first
    (tmp_path / "parts" / "p.cuh").write_text("int b;\n")
    assert render(study, case_of(study), folder=tmp_path).digest != first.digest
    assert re.fullmatch("[0-9a-f]{64}", first.digest) and first.entry == "t"
