"""What a row is called, builds in one row, words against full, LaTeX, the matrix, stale records."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
import record_files as made
from hypothesis import given
from hypothesis import strategies as st

import ablations
from harness import publish
from harness.cases import default_cases, full_case
from harness.cli.facts import digest_today, study_facts
from harness.publish.collect import find, read_all
from harness.publish.labels import labels
from harness.publish.latex import tex
from harness.render import render

PARTS = publish.StudyFacts(parts={"copy": ("stripped",), "softmax": ("no_max", "none")})
FULL = {"dim": 64, "copy": "kept", "softmax": "full"}


def row(case: str, full: str, set_name: str = "strips", slug: str = "m128", **changed: Any) -> dict[str, Any]:
    return {
        "case": case,
        "full": full,
        "set": set_name,
        "slug": slug,
        "problem": "waves",
        "levels": tuple({**FULL, **changed}.items()),
    }


def names(rows: list[dict[str, Any]], facts: publish.StudyFacts = PARTS) -> list[str]:
    return [label.text for label in labels(rows, facts)]


def lattice(dim: int, name: str) -> list[dict[str, Any]]:
    return [
        row(name, name, "full", dim=dim),
        row(f"a{dim}", name, dim=dim, copy="stripped"),
        row(f"b{dim}", name, dim=dim, softmax="no_max"),
        row(f"c{dim}", name, dim=dim, softmax="none"),
        row(f"d{dim}", name, "adds", dim=dim, copy="stripped", softmax="none"),
        row(f"e{dim}", name, "adds", dim=dim, copy="stripped"),
        row(f"f{dim}", name, "adds", dim=dim, copy="stripped", softmax="no_max"),
    ]


def test_a_row_is_called_by_what_is_stripped_from_its_full() -> None:
    assert names(lattice(64, "full")[:5]) == ["full", "- copy", "- softmax=no_max", "- softmax", "floor"]


def test_a_row_of_the_set_adds_is_called_by_what_stands_on_the_floor() -> None:
    found = lattice(64, "full")
    assert names([found[0], found[4], found[5], found[6]])[1:] == [
        "floor",
        "floor + softmax",
        "floor + softmax=no_max",
    ]


def test_two_cases_of_a_block_are_never_called_alike() -> None:
    found = [*lattice(64, "full")[:5], row("again", "full", copy="stripped")]
    assert names(found)[1] == "a64"
    assert names(found)[5] == "again"


def test_a_full_case_with_many_rows_leads_a_block_and_others_join_the_nearest() -> None:
    found = [
        *lattice(64, "full")[:5],
        *lattice(128, "dim=128")[:5],
        row("acc", "acc", "full", dim=128, acc="f16"),
        row("acc-floor", "acc", dim=128, acc="f16", copy="stripped", softmax="none"),
        row("full@m64", "full", "full", slug="m64"),
    ]
    given_labels = labels(found, PARTS)
    assert [label.subtitle for label in given_labels] == [
        *["dim=64, configuration m128"] * 5,
        *["dim=128, configuration m128"] * 7,
        "dim=64, configuration m128",
    ]
    assert [label.text for label in given_labels][-3:] == ["acc=f16", "acc=f16, floor", "full @m64"]


def test_a_sweep_without_parts_is_called_by_its_levels() -> None:
    found = [row("full", "full", "full", chains=4), row("x", "full", "sweep", chains=1, warps=2)]
    assert names(found) == ["full", "chains=1, warps=2"]


@pytest.mark.parametrize("name", sorted(ablations.load()))
def test_labels_of_every_study_are_short_and_distinct(name: str) -> None:
    study, facts = ablations.load()[name], study_facts((name,))[name]
    found = [
        {
            "case": case.name,
            "full": full_case(study, case).name,
            "set": case.set_name,
            "slug": case.name.partition("@")[2],
            "problem": case.problem,
            "levels": tuple(case.levels.items()),
        }
        for case in default_cases(study)
    ]
    given_labels = labels(found, facts)
    assert len({(label.block, label.text) for label in given_labels}) == len(found)
    main = [len(label.text) for label, r in zip(given_labels, found, strict=True) if r["set"] != "ceiling"]
    assert max(main) <= 44


def test_the_full_case_of_a_study_of_one_axis_names_its_level() -> None:
    one_axis = publish.StudyFacts(cases=["full", "x"])
    both = [row("full", "full", "full"), row("x", "x", "full")]
    one = [{**r, "levels": (("operation", o),)} for r, o in zip(both, ("load", "store"), strict=True)]
    assert names(one, one_axis) == ["full, operation=load", "operation=store"]
    assert names(one) == ["full", "operation=store"]
    assert names(both[:1], one_axis) == ["full"]


# ------------------------------------------------------------ builds and words


def sections(root: Path, **more: Any) -> tuple[publish.Section, ...]:
    files, problems = read_all(find(root))
    assert problems == ()
    return publish.sections(publish.frame(files, **more), files)


def timed(case: str, cycles: float, *, build: int = 0, flops: int = 10**9, **more: Any) -> dict[str, Any]:
    """Twelve rounds with a tenth of a percent of noise."""
    noise = [1 + 0.001 * ((7 * i + build) % 5 - 2) for i in range(12)]
    columns = made.samples([flops / (cycles * n) for n in noise])
    columns["busy_cycles"] = [cycles * n for n in noise]
    columns["seconds"] = [cycles * n / 1.8e9 for n in noise]
    work = {**made.record()["work"], "flops": flops}
    return made.record(case, samples=columns, work=work, perturbation=build, **more)


def test_builds_of_a_case_are_one_row_with_their_median_and_spread(tmp_path: Path) -> None:
    builds = [timed("full@m128", cycles, build=i) for i, cycles in enumerate((1e6, 1.02e6, 1.01e6))]
    made.results(tmp_path, *builds)
    (section,) = sections(tmp_path)
    (found,) = section.rows
    assert found["builds"] == 3
    assert found["flop_clk_sm"] == pytest.approx(1e9 / 1.01e6, rel=1e-3)
    assert found["codegen_percent"] == pytest.approx(1.0, abs=0.02)
    assert len(section.records) == 3


def test_a_build_that_failed_keeps_its_row(tmp_path: Path) -> None:
    bad = made.failed("full@m128", "wrong", "off by one", perturbation=1)
    made.results(tmp_path, timed("full@m128", 1e6), bad, timed("full@m128", 1e6, build=2))
    text = publish.terminal(find(tmp_path), tmp_path)
    assert "full (text 1)" in text
    assert "wrong: off by one" in text
    assert len(sections(tmp_path)[0].rows) == 2


def test_texts_of_an_older_run_do_not_mix_with_a_newer_one(tmp_path: Path) -> None:
    made.results(tmp_path, timed("full@m128", 1e6), timed("full@m128", 2e6, build=1))
    late = made.header(run="b" * 32, started="2026-12-01T00:00:00Z")
    made.write(tmp_path / "records/demo/x/two.jsonl", late, [timed("full@m128", 1e6)])
    (found,) = sections(tmp_path)[0].rows
    assert found["builds"] == 1
    assert found["flop_clk_sm"] == pytest.approx(1000, rel=1e-2)


def test_the_word_against_full_uses_cycles_per_work(tmp_path: Path) -> None:
    stripped = {"copy": "stripped"}
    made.results(
        tmp_path,
        timed("full@m128", 1e6),
        timed("copy=stripped@m128", 2 * 0.9e6, flops=2 * 10**9, levels=stripped),
        timed("copy=half@m128", 1.1e6, levels={"copy": "half"}),
        timed("copy=same@m128", 1e6, levels={"copy": "same"}),
    )
    cells = {r["case"]: r for r in sections(tmp_path)[0].rows}
    assert cells["copy=stripped@m128"]["effect"] == "faster"
    assert cells["copy=stripped@m128"]["effect_percent"] == pytest.approx(11.1, abs=0.2)
    assert cells["copy=half@m128"]["effect"] == "slower"
    assert cells["copy=half@m128"]["effect_percent"] == pytest.approx(-9.1, abs=0.2)
    assert cells["copy=same@m128"]["effect"] == "same"
    assert cells["full@m128"]["effect"] is None
    text = publish.terminal(find(tmp_path), tmp_path)
    assert "+11.1 % faster" in text
    assert "-9.1 % slower" in text


def test_another_configuration_is_no_effect_but_a_ceiling(tmp_path: Path) -> None:
    other = timed("full@m64", 0.9e6, configuration={"block_m": 64}, set="ceiling", levels={"copy": "kept"})
    made.results(tmp_path, timed("full@m128", 1e6), other)
    (section,) = sections(tmp_path)
    assert [r["case"] for r in section.main] == ["full@m128"]
    assert section.main[0]["ceiling_at"] == "m64"
    assert section.alternatives[0]["effect"] is None
    text = publish.terminal(find(tmp_path), tmp_path)
    assert "1 more rows at other configurations" in text


# ------------------------------------------------------------ hardware counters

READ = {
    "tensor_active_percent": 53.21,
    "issue_active_percent": 44.94,
    "mufu_active_percent": 37.76,
    "shared_active_percent": 47.55,
    "l2_hit_percent": 90.03,
    "stalled_math_pipe_throttle": 0.52,
    "stalled_wait": 1.14,
    "stalled_long_scoreboard": 0.11,
}
HEADS = ("active %", "math thr", "top stall", "counters:")


def two_cases(root: Path, **full: Any) -> Path:
    bare = timed("copy=stripped@m128", 0.9e6, levels={"copy": "stripped"})
    return made.results(root, timed("full@m128", 1e6, **full), bare)


def published(root: Path) -> dict[str, str]:
    """Ending -> the file of the study; the page and the brief table of a README."""
    readme = root / "front.md"
    (section,) = sections(root)
    readme.write_text(f"<!-- table:{section.stem} brief -->\n<!-- /table -->\n")
    assert publish.publish(root, readmes=[readme]).problems == ()
    texts = {path.suffix: path.read_text() for path in (root / "tables").glob("demo*")}
    return {**texts, "page": (root / "report/index.html").read_text(), "brief": readme.read_text()}


def cells_of(markdown: str, case: str) -> dict[str, str]:
    lines = [[cell.strip() for cell in line.split(" | ")] for line in markdown.splitlines()]
    head = next(line for line in lines if line[0] == "| case")
    return dict(zip(head, next(line for line in lines if line[0] == f"| {case}"), strict=True))


def test_counters_stand_beside_the_rate_in_every_whole_table(tmp_path: Path) -> None:
    two_cases(tmp_path, counters=made.counters(**READ))
    texts = published(tmp_path)
    full, bare = (row for row in csv.DictReader(io.StringIO(texts[".csv"])))
    assert full["profiler"] == "Nsight Compute 2025.3.1" and full["top_stall"] == "wait 1.14"
    assert [full[name] for name in READ if name in full] == ["53.21", "44.94", "37.76", "47.55", "90.03"]
    assert full["math_throttle"] == "0.52" and bare["math_throttle"] == bare["profiler"] == ""
    cells = cells_of(texts[".md"], "full")
    assert cells["tensor active %"] == "53.2" and cells["math throttle (clk per issue)"] == "0.52"
    assert cells["top stall (clk per issue)"] == "wait 1.14"
    assert cells_of(texts[".md"], r"- copy")["tensor active %"] == ""
    assert r"\textbf{tensor active \%}" in texts[".tex"] and " & 53.2 & 0.52 & wait 1.14 & " in texts[".tex"]
    assert ">tensor active %<" in texts["page"] and "<td>53.2<td>0.52<td>wait 1.14" in texts["page"]
    for ending in (".md", ".tex", "page"):
        assert texts[ending].count("Nsight Compute 2025.3.1 read one launch") == 1
    assert publish.check(tmp_path) == ()


def test_a_brief_table_shows_no_counters(tmp_path: Path) -> None:
    two_cases(tmp_path / "with", counters=made.counters(**READ))
    two_cases(tmp_path / "without")
    assert published(tmp_path / "with")["brief"] == published(tmp_path / "without")["brief"]


@pytest.mark.parametrize("none", [None, {"tool": "ncu", "values": {}}])
def test_without_counters_there_is_no_column_and_no_line(tmp_path: Path, none: Any) -> None:
    two_cases(tmp_path, counters=none)
    texts = published(tmp_path)
    terminal = publish.terminal(find(tmp_path), tmp_path, columns=400)
    for text in (terminal, texts[".md"], texts[".tex"], texts["page"]):
        assert not any(head in text for head in HEADS)
    assert "profiler" in texts[".csv"].splitlines()[0]


def test_a_terminal_shows_counters_where_it_is_wide_enough(tmp_path: Path) -> None:
    rows = [timed("full@m128", 1e6, counters=made.counters(**READ))]
    rows.append(timed("x@m128", 0.9e6, levels={"copy": "stripped", "schedule": "one_that_has_a_long_name"}))
    made.results(tmp_path, *rows)
    wide = publish.terminal(find(tmp_path), tmp_path, columns=200)
    assert re.search(r"full .* 53\.2 +0\.52 +wait 1\.14 ", wide)
    shown = []
    for columns in range(80, 200, 5):
        text = publish.terminal(find(tmp_path), tmp_path, columns=columns)
        about, _, table = text.partition("\n\n")
        assert max(map(len, text.splitlines())) <= columns
        for word, head in (("tensor active is", "active %"), ("top stall is", "top stall")):
            assert (word in " ".join(about.split())) == (head in table)
        shown.append("active %" in table)
    assert shown[0] is False and shown[-1] is True


def test_the_row_of_a_case_takes_all_counters_of_the_build_that_has_them(tmp_path: Path) -> None:
    other = made.counters(tool="another", stalled_wait=9.0, mufu_active_percent=1.0)
    builds = [
        timed("full@m128", 1e6),
        timed("full@m128", 1e6, build=1, counters=made.counters(tensor_active_percent=53.21)),
        timed("full@m128", 1e6, build=2, counters=other),
    ]
    made.results(tmp_path, *builds)
    (section,) = sections(tmp_path)
    (found,) = section.rows
    assert found["tensor_active_percent"] == 53.21
    assert found["profiler"] == "Nsight Compute 2025.3.1"
    assert found["top_stall"] is None and found["mufu_active_percent"] is None
    assert [row["top_stall"] for row in section.records] == [None, None, "wait 9.00"]


def test_a_case_that_failed_shows_no_counters(tmp_path: Path) -> None:
    bad = made.failed("copy=stripped@m128", "wrong", "off by one", counters=made.counters(**READ))
    made.results(tmp_path, timed("full@m128", 1e6), bad)
    assert {row["profiler"] for row in sections(tmp_path)[0].rows} == {None}


# ------------------------------------------------------------ LaTeX


def untex(text: str) -> str:
    words = {
        r"\textbackslash{}": "\\",
        r"\textasciitilde{}": "~",
        r"\textasciicircum{}": "^",
        r"\textless{}": "<",
        r"\textgreater{}": ">",
        r"\textbar{}": "|",
        r"\textquotedbl{}": '"',
        r"\textasciigrave{}": "`",
        r"\textquotesingle{}": "'",
        r"$\pm$": "±",
        "{-}": "-",
        "{[}": "[",
        "{]}": "]",
    }
    pattern = "|".join(map(re.escape, words)) + r"|\\[{}$&#%_]"
    return re.sub(pattern, lambda found: words.get(found[0], found[0][-1]), text)


@given(st.text())
def test_any_text_reads_the_same_in_latex(text: str) -> None:
    wanted = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert untex(tex(text)) == wanted


@given(st.text(alphabet="\\{}$&#%_~^<>|\"'`-[]ab "))
def test_no_special_of_latex_stays_alone(text: str) -> None:
    rest = re.sub(r"\\text[a-z]+\{\}|\\[{}$&#%_]|\$\\pm\$|\{[-\[\]]\}", "", tex(text))
    assert not set(rest) & set("\\{}$&#%_~^<>|\"'`-[]")


def test_latex_lines_have_as_many_cells_as_columns(tmp_path: Path) -> None:
    nasty = "50 % of a_b & {c} $x$ \\input{x} ~ ^ # <script>|"
    made.results(
        tmp_path,
        timed("full@m128", 1e6),
        timed("copy=stripped@m128", 0.9e6, levels={"copy": "stripped"}),
        made.failed(f"{nasty}@m128", "wrong", nasty),
    )
    publish.publish(tmp_path)
    (path,) = (tmp_path / "tables").glob("demo*.tex")
    text = path.read_text()
    columns = len(re.search(r"\\begin\{longtable\}\{(l[r]*)\}", text)[1])  # type: ignore[index]
    body = text.split(r"\endfoot")[1].split(r"\end{longtable}")[0].strip().splitlines()
    assert len(body) == 3 + 1  # a subtitle
    for line in body:
        assert line.endswith(r"\\")
        spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(n - 1 for n in spans) == columns
    assert text.count(r"\toprule") == 2
    assert r"\bottomrule" in text
    assert r"\input{x}" not in text


# ------------------------------------------------------------ matrix


def test_the_matrix_holds_the_best_ceiling_and_fulls_share(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[2048.0]), made.record("copy=stripped@m64", [2100.0]))
    card = {**made.H200, "name": "Other | GPU", "uuid": "GPU-9"}
    head = made.header(card, run="b" * 32)
    made.write(
        tmp_path / "records/demo/o/x.jsonl", head, [made.record(gpu=card["name"], rates=[9.0]), failed_row()]
    )
    publish.publish(tmp_path)
    table = list(csv.DictReader(io.StringIO((tmp_path / "tables/matrix.csv").read_text())))
    assert [(e["gpu"], e["ceiling_flop_clk_sm"], e["full_percent"]) for e in table] == [
        ("NVIDIA H200", "2100", "75"),
        ("Other | GPU", "9", ""),
    ]
    text = (tmp_path / "tables/matrix.md").read_text()
    assert "Other \\| GPU" in text
    assert "[2100.0](demo-NVIDIA-H200" in text
    assert "[none](demo-Other" in text
    assert "[2100.0](tables/demo-NVIDIA-H200" in (tmp_path / "README.md").read_text()


def failed_row() -> dict[str, Any]:
    return made.failed("copy=x@m128", "hung", "no answer", gpu="Other | GPU")


# ------------------------------------------------------------ stale


def test_a_stale_row_is_labelled_with_what_refreshes_it(tmp_path: Path) -> None:
    old = made.record("copy=stripped@m128", [2100.0], source={"digest": "0" * 64})
    made.results(tmp_path, made.record(), old)
    publish.publish(tmp_path, context=publish.Context(current=lambda record: "d" * 64))
    (page,) = (tmp_path / "tables").glob("demo*.md")
    text = page.read_text()
    assert text.count("(*stale*)") == 1
    assert "**STALE: 1 of 2 rows" in text
    assert "ablate run demo --case 'copy=stripped@m128'" in text
    assert "*stale*" in (tmp_path / "README.md").read_text()
    assert publish.stale(tmp_path, lambda record: "d" * 64) == (
        "demo on NVIDIA H200: 1 of 2 rows are stale, their templates render another text today; "
        "refresh with `ablate run demo`",
    )


def test_a_changed_template_makes_no_table_wrong_and_no_label_is_lost(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(), made.record("c\n\x0b=1@m128", source={"digest": "0" * 64}))
    publish.publish(tmp_path, context=publish.Context(current=lambda record: "d" * 64))
    assert publish.check(tmp_path) == ()
    (page,) = (tmp_path / "tables").glob("demo*.md")
    page.write_text(page.read_text().replace(" (*stale*)", ""))
    assert any("out of date" in line for line in publish.check(tmp_path))


def test_a_study_that_nobody_knows_is_not_judged(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    assert publish.stale(tmp_path, digest_today()) == ()


def test_todays_digest_is_that_of_the_rendered_case() -> None:
    study = next(iter(ablations.load().values()))
    case = next(case for case in default_cases(study) if case.skip is None)
    record = {
        "study": study.name,
        "levels": dict(case.levels),
        "configuration": dict(case.configuration),
        "problem": case.problem,
        "perturbation": 1,
    }
    assert digest_today()(record) == render(study, case, 1).digest
    assert digest_today()({**record, "levels": {"gone": 1}}) == ""


# ------------------------------------------------------------ predicted


def predicted(case: str, bound: float, **more: Any) -> dict[str, Any]:
    found = {"flop_clk_sm": bound, "binding": "tensor"}
    return made.record(case, None, type="predicted", predicted=found, **more)


def test_a_predicted_table_says_so_and_is_labelled_in_the_matrix(tmp_path: Path) -> None:
    gpu = "NVIDIA GeForce RTX 4090"
    head = made.header(None)
    made.write(tmp_path / "records/demo/p/x.jsonl", head, [predicted("full@m128", 512.0, gpu=gpu)])
    text = publish.terminal(find(tmp_path), tmp_path)
    assert "predicted, not measured" in text
    assert "512.0" in text
    assert "what no run can beat" in text
    publish.publish(tmp_path)
    assert "512.0](demo-" in (matrix := (tmp_path / "tables/matrix.md").read_text())
    assert matrix.count(".md) *predicted*") == 2


def test_a_bound_stands_beside_what_was_measured(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[2048.0]))
    context = publish.Context(
        bounds=lambda header, record: publish.Bound(flop_clk_sm=2560.0, binding="tensor")
    )
    publish.publish(tmp_path, context=context)
    (found,) = csv.DictReader(io.StringIO(next((tmp_path / "tables").glob("demo*.csv")).read_text()))
    assert (found["bound"], found["of_bound"], found["binding"]) == ("2560", "80", "tensor")


def test_the_caption_holds_the_working_set_against_l2(tmp_path: Path) -> None:
    small, large = made.record(), made.record("copy=stripped@m128")
    small["work"]["unique_bytes"], large["work"]["unique_bytes"] = 30_000_000, 90_000_000
    made.results(tmp_path, small, large)
    text = " ".join(publish.terminal(find(tmp_path), tmp_path).split())
    assert "L2 warm (working sets of 30 to 90 MB, L2-resident or larger than L2: 60 MB)" in text


@pytest.mark.parametrize(
    ("level", "most", "name"),
    [
        ("l2_bytes", 2400.0, "L2"),
        ("dram_bytes", 2400.0, "DRAM"),
        ("l2_bytes", 3000.0, None),
        (None, None, None),
    ],
)
def test_a_row_limited_by_memory_says_that_its_cycles_are_not_free_of_the_clock(
    tmp_path: Path, level: str | None, most: float | None, name: str | None
) -> None:
    made.results(tmp_path, made.record())
    bound = publish.Bound(flop_clk_sm=2560.0, binding="tensor", memory=level, memory_flop_clk_sm=most)
    context = publish.Context(bounds=lambda header, record: bound)
    publish.publish(tmp_path, context=context)
    (found,) = csv.DictReader(io.StringIO(next((tmp_path / "tables").glob("demo*.csv")).read_text()))
    assert (f"near the most that {name} is known to give, which may be the limit" in found["notes"]) == (
        name is not None
    )


def test_work_that_is_no_flop_has_its_own_unit_and_no_peak(tmp_path: Path) -> None:
    def idle(case: str, cycles: float, build: int = 0, **more: Any) -> dict[str, Any]:
        found = timed(case, cycles, build=build, **more)
        found["work"]["unit"] = "exp"
        return found

    levels = [{"pipe": i, "depth": j} for i in range(3) for j in range(3)]
    made.results(
        tmp_path,
        idle("full@m128", 1e6, levels={"pipe": 9, "depth": 9}),
        idle("full@m128", 1e6, 1, levels={"pipe": 9, "depth": 9}),
        *(idle(f"c={i}@m128", 0.9e6, levels=level) for i, level in enumerate(levels)),
    )
    assert publish.publish(tmp_path).problems == ()
    (section,) = sections(tmp_path)
    assert {r["effect"] for r in section.rows} == {None, "faster"}
    assert {(r["unit"], r["flop_clk_sm"], r["own_percent"], r["tflop_s"]) for r in section.rows} == {
        ("exp", None, None, None)
    }
    text = publish.terminal(find(tmp_path), tmp_path)
    assert "1000.00" in text
    assert "exp" in text
    assert "FLOP/" not in text.replace("FLOP/clk/SM against", "")
