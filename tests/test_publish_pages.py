"""Markdown, markers and the published folder: text stays text, equal records give equal bytes."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest
import record_files as made
from hypothesis import given
from hypothesis import strategies as st

from harness import publish
from harness.publish.markdown import escape, fill_markers, markdown_table, marker_problems
from harness.publish.section import Section, largest_sections


def unescaped(text: str) -> str:
    return re.sub(r"\\([\\`*_\[\]<>|~$&])", r"\1", text)


def pipes(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))


@given(st.text())
def test_escaped_text_reads_the_same_and_is_one_cell(text: str) -> None:
    cell = escape(text)
    assert "\n" not in cell
    assert pipes(cell) == 0
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>`*]", cell)
    wanted = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert unescaped(cell) == wanted


NASTY = [
    "qk|pv",
    "a\nb",
    "`x|y`",
    "<none>",
    "*full*",
    "<script>alert(1)</script>",
    "NVIDIA RTX™ A6000",
    "a\\|b",
    "$x_1$ & {y}",
]


def test_every_line_of_a_table_has_the_same_number_of_pipes() -> None:
    text = markdown_table(["case", "x", "notes"], [[escape(name), "1", escape(name)] for name in NASTY])
    lines = text.splitlines()
    assert len(lines) == len(NASTY) + 2
    assert {pipes(line) for line in lines} == {4}
    assert re.fullmatch(r"\| :-- \| --: \| :-- \|", lines[1])


def test_an_empty_table_is_a_header() -> None:
    assert markdown_table(["case", "x"], []).count("\n") == 2


def test_text_from_a_record_is_text_on_the_page(tmp_path: Path) -> None:
    card = {**made.H200, "name": "NVIDIA RTX™ <b>|\n`A6000`"}
    bad = [made.failed(f"{name}@m128", "wrong", name, gpu=card["name"]) for name in NASTY]
    made.results(tmp_path, made.record(gpu=card["name"]), *bad, gpu=card)
    publish.publish(tmp_path)
    (page,) = (tmp_path / "tables").glob("demo*.md")
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert len(lines) == len(NASTY) + 1 + 2
    assert len({pipes(line) for line in lines}) == 1
    assert "<script>" not in page.read_text()
    assert "<b>" not in (tmp_path / "README.md").read_text()


def test_a_markdown_table_holds_failed_and_skipped_rows_with_their_reason(tmp_path: Path) -> None:
    made.results(
        tmp_path,
        made.record(),
        made.failed("a=1@m128", "skipped", "cannot exist"),
        made.failed("b=1@m128", "hung", "no answer in 10 s"),
    )
    publish.publish(tmp_path)
    (page,) = (tmp_path / "tables").glob("demo*.md")
    text = page.read_text()
    assert "skipped: cannot exist" in text
    assert "hung: no answer in 10 s" in text
    assert (tmp_path / "tables" / f"{page.stem}.csv").read_text().count("\n") == 4


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made.results(tmp_path / name, made.record(), made.record("copy=stripped@m128", [2400.0]))
        publish.publish(tmp_path / name)
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")
    assert publish.publish(tmp_path / "a").written == ()


def test_check_passes_on_fresh_tables_and_names_every_change(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    assert any("is missing" in line for line in publish.check(tmp_path))
    publish.publish(tmp_path)
    assert publish.check(tmp_path) == ()
    (page,) = (tmp_path / "tables").glob("demo*.md")
    page.write_text(page.read_text().replace("2000", "2001"))
    (problem,) = publish.check(tmp_path)
    assert problem == f"{page} is out of date: run `ablate publish`"


def test_a_table_without_records_goes_and_hand_written_files_stay(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    publish.publish(tmp_path)
    own = tmp_path / "tables" / "mine.md"
    own.write_text("# by hand\n")
    next((tmp_path / "records").rglob("*.jsonl")).unlink()
    assert sum("belongs to no record" in line for line in publish.check(tmp_path)) == 7
    publish.publish(tmp_path)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["mine.md"]
    assert publish.check(tmp_path) == ()


def add_built(root: Path) -> None:
    """What a run without a GPU leaves in a results folder."""
    target = {"arch": "sm_90a", "gpu": None}
    rows = [made.record("full@m128", None, gpu=None, target=target)]
    made.write(root / "records/demo/sm_90a/b.jsonl", made.header(None, run="b" * 32), rows)


def test_what_was_only_built_changes_no_table(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    publish.publish(tmp_path)
    before = snapshot(tmp_path)
    add_built(tmp_path)
    assert publish.publish(tmp_path) == publish.Published(written=(), problems=(), left_out=1)
    assert publish.check(tmp_path) == ()
    assert snapshot(tmp_path).items() >= before.items()
    assert publish.stale(tmp_path, lambda record: "another" if record["type"] == "built" else None) == ()


def test_what_was_only_built_is_published_where_that_is_asked_for(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    add_built(tmp_path)
    assert publish.publish(tmp_path, built=True).left_out == 0
    assert (tmp_path / "tables/demo-built.md").is_file()
    assert "demo-built" in (tmp_path / "README.md").read_text()
    assert publish.check(tmp_path, built=True) == ()
    assert publish.stale(tmp_path, lambda record: "another", built=True)[-1].startswith("demo built for sm")
    problems = publish.check(tmp_path)
    assert [line.partition(" is out of date: ")[0] for line in problems] == [
        str(tmp_path / "README.md"),
        str(tmp_path / "report/index.html"),
    ]
    assert all("`ablate check --built`" in line for line in problems)


def test_built_tables_from_before_are_no_fault_and_go_when_publishing(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    publish.publish(tmp_path)
    committed = snapshot(tmp_path)
    add_built(tmp_path)
    # Published when the template had changed: the built row is marked stale, and has the digest of the other.
    publish.publish(tmp_path, built=True, context=publish.Context(current=lambda record: "another"))
    for name, data in committed.items():
        (tmp_path / name).write_bytes(data)  # as a checkout puts them back
    assert publish.check(tmp_path) == ()
    publish.publish(tmp_path)
    assert not list((tmp_path / "tables").glob("*-built.*"))


def test_a_built_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    add_built(tmp_path)
    (tmp_path / "records/demo/sm_90a/b.jsonl").write_text("foreign\n")
    assert len(publish.check(tmp_path)) == 1


def test_a_foreign_file_is_named_and_the_others_are_published(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    bad = tmp_path / "records" / "demo" / "bad.jsonl"
    bad.write_text('{"what": 1}\n')
    published = publish.publish(tmp_path)
    assert len(published.written) == 8
    assert len(published.problems) == 1
    assert str(bad) in published.problems[0]
    assert str(bad) in publish.check(tmp_path)[0]
    assert bad.read_text() == '{"what": 1}\n'


def test_check_finds_a_record_that_breaks_the_schema(tmp_path: Path) -> None:
    made.results(tmp_path, made.failed("a=1@m128", "wrong", "off", samples=made.samples([1e20])))
    publish.publish(tmp_path)
    assert any("one.jsonl:2" in line for line in publish.check(tmp_path))
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"levels": [1]},
        {"configuration": "x"},
        {"target": "x"},
        {"perturbation": "a"},
        {"build": {"loop": "x"}},
        {"checks": "x"},
        {"case": 5},
        {"samples": {"seconds": 1.0}},
        {"samples": made.samples([-1.0])},
    ],
)
def test_a_misshapen_record_costs_its_own_file_only(tmp_path: Path, change: dict[str, object]) -> None:
    made.results(tmp_path, made.record())
    made.write(
        tmp_path / "records/demo/G/bad.jsonl", made.header(run="b" * 32), [{**made.record(), **change}]
    )
    published = publish.publish(tmp_path)
    assert len(list((tmp_path / "tables").glob("demo*.md"))) == 1
    assert ["bad.jsonl:2: " in line for line in published.problems] == [True]
    assert published.problems[0] in publish.check(tmp_path)


@pytest.mark.parametrize("name", ["A/B\\..", "", "™" * 300, "n" * 300, "../../up", "a b"])
def test_any_gpu_name_makes_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    card = {**made.H200, "name": name or " "}
    made.results(tmp_path, made.record(gpu=card["name"]), gpu={**card, "name": "x"})
    path = next((tmp_path / "records").rglob("*.jsonl"))
    text = path.read_text().replace('"name":"x"', f'"name":{_json(card["name"])}')
    path.write_text(text)
    publish.publish(tmp_path)
    names = sorted(p.name for p in (tmp_path / "tables").iterdir())
    assert len(names) == 6
    assert all(len(n.encode()) < 200 for n in names)


def _json(text: str) -> str:
    import json

    return json.dumps(text)


def test_gpu_names_that_look_alike_get_different_files(tmp_path: Path) -> None:
    for i, name in enumerate(("RTX A", "RTX-A", "RTX/A")):
        card = {**made.H200, "name": name}
        head = made.header(card, run=str(i) * 32)
        made.write(tmp_path / f"records/demo/{i}/x.jsonl", head, [made.record(gpu=name)])
    publish.publish(tmp_path)
    assert len(list((tmp_path / "tables").glob("demo*.md"))) == 3


def test_a_marked_table_is_written_and_the_rest_is_untouched(tmp_path: Path) -> None:
    made.results(tmp_path / "results", made.record(), made.record("c=1@m128", [9.0], set="ceiling"))
    publish.publish(tmp_path / "results")
    (page,) = (tmp_path / "results/tables").glob("demo*.md")
    readme = tmp_path / "README.md"
    readme.write_text(f"# before\n\n<!-- table:{page.stem} brief -->\nold\n<!-- /table -->\n\nafter\n")
    assert any("out of date" in line for line in publish.check(tmp_path / "results", readmes=[readme]))
    publish.publish(tmp_path / "results", readmes=[readme])
    text = readme.read_text()
    assert text.startswith("# before\n\n")
    assert text.endswith("<!-- /table -->\n\nafter\n")
    assert "| full |" in text
    assert "configuration m128" in text
    assert "c=1@m128" not in text
    assert "old" not in text
    assert publish.check(tmp_path / "results", readmes=[readme]) == ()


def test_files_that_publish_did_not_write_are_kept(tmp_path: Path) -> None:
    mine = [tmp_path / "README.md", tmp_path / "report/index.html"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("my own work\n")
    assert publish.publish(tmp_path) == publish.Published(written=(), problems=())
    made.results(tmp_path, made.record())
    problems = publish.publish(tmp_path).problems
    assert [path.read_text() for path in mine] == ["my own work\n"] * 2
    assert [f"{path} was not written by publish" in line for path, line in zip(mine, problems, strict=True)]
    assert publish.check(tmp_path) == problems


def test_unknown_and_unclosed_markers_are_problems() -> None:
    assert marker_problems("<!-- table:nope -->\n<!-- /table -->\n", {"a": 1}) == [
        "no table 'nope'; there are a"
    ]
    assert "no <!-- /table -->" in marker_problems("<!-- table:a -->\n", {"a": 1})[0]
    assert marker_problems("<!-- table:a -->\n\n<!-- /table -->", {"a": 1}) == []


def test_a_backslash_in_a_table_is_no_group_reference() -> None:
    text = fill_markers("<!-- table:a -->\n<!-- /table -->", lambda name, brief: r"\1 \g<0> \\")
    assert text == "<!-- table:a -->\n\\1 \\g<0> \\\\\n<!-- /table -->"


@pytest.mark.slow
def test_ten_thousand_records_of_twenty_gpus_are_published_in_ten_seconds(tmp_path: Path) -> None:
    assert made.many(tmp_path) >= 10_000
    start = time.process_time()
    published = publish.publish(tmp_path)
    assert len(published.written) == 65
    assert time.process_time() - start < 10
    assert (tmp_path / "report/index.html").stat().st_size < 2_000_000


def table_of(kind: str, count: int, gpu: str | None = "G") -> Section:
    rows = tuple({"type": kind} for _ in range(count))
    return Section(study="s", gpu=gpu, problem="", rows=rows, records=(), headers=(), partial=())


def test_a_study_speaks_from_its_largest_measured_table() -> None:
    small, large = table_of("measured", 1), table_of("measured", 2)
    predicted, built = table_of("predicted", 3), table_of("built", 4, gpu=None)
    for order in itertools.permutations((small, large, predicted, built)):
        assert largest_sections(order) == {("s", "G"): large}
    assert largest_sections((built, predicted)) == {("s", "G"): predicted}
    assert largest_sections((built,)) == {}
