"""The page in a real browser: it renders, sorts, filters, opens a diff, and asks nobody for anything."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import record_files as made

from harness import publish, sources
from harness.publish.texts import Texts

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: install chromium")

# What Chromium itself asks for when it starts.
BROWSERS_OWN = (".google.com", ".googleapis.com", ".gvt1.com", ".gstatic.com")
NASTY = "</script><script>window.broken = 1</script> | \\input <b>&amp;\n$x$"
FULL = "// kernel\n" + "".join(f"line {i};\n" for i in range(40))
HEADERS = {"ptx.cuh": "// header\n"}


def stripped(name: str) -> str:
    return FULL.replace("line 20;\n", f"// {name}: no copy here </script>\n")


def results(root: Path) -> Path:
    """Two GPUs, a study with parts and one with a sweep, failures, names that are markup, kept texts."""
    kept = {}
    for name, text in (("full", FULL), ("stripped", stripped("stripped"))):
        kept[name] = digest_of(sources.keep(root / "sources", text, HEADERS))
    cases = [
        ("full@m128", 2000.0, "kept", "full"),
        ("copy=stripped@m128", 2400.0, "stripped", "stripped"),
        ("copy=half@m128", 1500.0, "half", "stripped"),
        ("copy=same@m128", 2000.1, "same", "stripped"),
    ]
    records = [
        made.record(name, samples=columns(rate), levels={"copy": level}, source={"digest": kept[text]})
        for name, rate, level, text in cases
    ]
    records.append(made.failed(f"{NASTY}@m128", "wrong", NASTY, levels={"copy": NASTY}))
    made.results(root, *records)
    sweep = [
        made.record(
            "full" if (c, w) == (4, 8) else f"chains={c},warps={w}",
            samples=columns(100.0 * c * w),
            study="sweep",
            full="full",
            levels={"chains": c, "warps": w},
            configuration={},
            gpu=f"Other {NASTY}",
        )
        for c in (4, 1, 2)
        for w in (8, 4, 16)
    ]
    card = {**made.H200, "name": f"Other {NASTY}", "uuid": "GPU-9"}
    made.write(root / "records/sweep/o/x.jsonl", made.header(card, run="b" * 32), sweep)
    return root


def columns(rate: float) -> dict[str, Any]:
    found = made.samples([rate * (1 + 0.0002 * (i % 3)) for i in range(12)])
    found["busy_cycles"] = [2e9 / value for value in found["flop_clk_sm"]]
    return found


def answers(files: object) -> list[publish.Answer]:
    parts = [publish.PartCost(name="copy", exposed=16.7, intrinsic=20.0)]
    return [
        publish.Answer(
            study="demo",
            gpu="NVIDIA H200",
            full="full@m128",
            word="part-bound",
            sentence=f"bound by the copy {NASTY}",
            evidence="it is",
            table=["part  exposed", "copy  17 <b>"],
            parts=parts,
            floor_percent=70.0,
            pipes=[("tensor", 53.0), ("shared_bytes", 46.0)],
        )
    ]


CONTEXT = publish.Context(
    answers=answers, bounds=lambda header, record: publish.Bound(flop_clk_sm=2730.0, binding="tensor")
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = results(tmp_path_factory.mktemp("results"))
    assert publish.publish(root, context=CONTEXT).problems == ()
    return root / "report" / "index.html"


# Runs in a copy of the page, before its own script and after it; what it found is left in the document.
BEFORE = """<script>window.problems = [];
for (const name of ["error", "warn"]) console[name] = (...words) => problems.push(words.join(" "));
addEventListener("error", (event) => problems.push(event.message));
const refused = (event) => problems.push("policy " + event.blockedURI);
addEventListener("securitypolicyviolation", refused);</script>"""
AFTER = """<script>(() => {
const none = {textContent: ""}, found = {}, table = document.querySelector("table"), body = table.tBodies[0];
const rows = () => [...body.rows].filter((row) => !row.hidden && !row.classList.contains("sub"));
const column = (label) => [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === label);
const values = (label) => rows().map((row) => row.cells[column(label)] ?? none).map((c) => c.textContent);
const head = (label) => table.tHead.rows[0].cells[column(label)].querySelector("button");
found.before = values("case");
head("FLOP/clk/SM").click(); found.ascending = values("FLOP/clk/SM");
head("FLOP/clk/SM").click(); found.descending = values("FLOP/clk/SM");
found.aria = head("FLOP/clk/SM").parentNode.getAttribute("aria-sort");
const tools = document.querySelector(".tools"), input = tools.querySelector("input");
input.value = "STRIPPED m128"; input.dispatchEvent(new Event("input", {bubbles: true}));
found.filtered = values("case"); found.count = tools.querySelector("output").textContent;
input.value = ""; const word = tools.querySelector("select");
word.value = "faster"; word.dispatchEvent(new Event("input", {bubbles: true}));
found.faster = values("case");
word.value = "failed or skipped"; word.dispatchEvent(new Event("input", {bubbles: true}));
found.failed = rows().map((row) => row.dataset.case);
word.value = ""; word.dispatchEvent(new Event("input", {bubbles: true}));
const row = rows().find((row) => row.dataset.case.startsWith("copy=stripped"));
const dialog = document.querySelector("dialog");
row.querySelector("[data-show=diff]").click();
found.open = dialog.open; found.title = dialog.querySelector("h2").textContent;
found.minus = [...dialog.querySelectorAll(".minus")].map((e) => e.textContent);
found.plus = [...dialog.querySelectorAll(".plus")].map((e) => e.textContent);
dialog.querySelector("button").click(); found.closed = !dialog.open;
row.querySelector("[data-show=text]").click();
found.text = dialog.querySelector("pre").textContent; dialog.close();
found.buttons = [...document.querySelectorAll("button, input, select")].every((e) => e.tabIndex === 0);
found.plots = [...document.querySelectorAll("svg")].map((e) => e.querySelector("title").textContent);
found.sizes = [...document.querySelectorAll("svg")].every((e) => e.getBoundingClientRect().height > 40);
found.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
found.broken = window.broken === 1;
found.requests = performance.getEntriesByType("resource").map((e) => e.name);
found.problems = problems;
const out = document.createElement("script"); out.type = "application/json"; out.id = "found";
out.textContent = encodeURIComponent(JSON.stringify(found)); document.body.append(out); })();</script>"""


def chromium(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    quiet = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    lonely = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    return subprocess.run(
        [CHROMIUM, *quiet, *lonely, f"--user-data-dir={folder / 'profile'}", *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def seen(page: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a browser of a phone's width found on the page."""
    folder = tmp_path_factory.mktemp("browser")
    text = page.read_text()
    copy = folder / "copy.html"
    copy.write_text(text.replace("<title>", BEFORE + "<title>", 1).replace("</body>", AFTER + "</body>"))
    log = folder / "net.json"
    done = chromium(
        folder,
        "--enable-logging=stderr",
        "--window-size=500,900",
        f"--log-net-log={log}",
        "--virtual-time-budget=3000",
        "--dump-dom",
        f"file://{copy}",
    )
    found = re.search(r'id="found">([^<]*)</script>', done.stdout)
    assert found, done.stderr[-2000:]
    from urllib.parse import unquote

    answer: dict[str, Any] = json.loads(unquote(found[1]))
    answer["console"] = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    asked = re.findall(r'"url":"(https?://([^/"]*)[^"]*)"', log.read_text())
    answer["net"] = [url for url, host in asked if not host.endswith(BROWSERS_OWN)]
    return answer


@needs_browser
def test_no_console_error_and_no_request(seen: dict[str, Any]) -> None:
    assert seen["problems"] == []
    assert seen["console"] == []
    assert [url for url in seen["requests"] if not url.startswith("data:")] == []
    assert seen["net"] == []


@needs_browser
def test_text_of_a_record_is_text(seen: dict[str, Any]) -> None:
    assert seen["broken"] is False


@needs_browser
def test_a_column_sorts_both_ways_by_number_and_empty_cells_stay_last(seen: dict[str, Any]) -> None:
    assert seen["ascending"] == ["1500.3", "2000.4", "2000.5", "2400.5", ""]
    assert seen["descending"] == ["2400.5", "2000.5", "2000.4", "1500.3", ""]
    assert seen["aria"] == "descending"


@needs_browser
def test_rows_are_filtered_by_words_and_by_the_word(seen: dict[str, Any]) -> None:
    assert len(seen["before"]) == 5
    assert seen["filtered"] == ["- copy"]
    assert seen["count"] == "1 of 5 rows"
    assert seen["faster"] == ["- copy"]
    assert seen["failed"] == [f"{NASTY}@m128"]


@needs_browser
def test_a_diff_and_a_text_open_and_close(seen: dict[str, Any]) -> None:
    assert seen["open"]
    assert seen["closed"]
    assert seen["title"] == "copy=stripped@m128: what differs from full"
    assert seen["minus"] == ["- line 20;\n"]
    assert seen["plus"] == ["+ // stripped: no copy here </script>\n"]
    assert seen["text"] == stripped("stripped")


@needs_browser
def test_everything_is_reached_by_keyboard_and_fits_a_phone(seen: dict[str, Any]) -> None:
    assert seen["buttons"]
    assert seen["wide"] is False


@needs_browser
def test_plots_are_drawn_and_named(seen: dict[str, Any]) -> None:
    assert seen["sizes"]
    names = " ".join(seen["plots"])
    for name in ("From full to floor", "How busy each pipe is", "Cost of each case", "rate over the sweep"):
        assert name in names
    assert "measured against predicted" in names


@needs_browser
def test_light_and_dark_differ_and_both_can_be_read(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    shades = {}
    for mode, option in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
        path = tmp_path / f"{mode}.png"
        chromium(tmp_path / mode, "--window-size=900,1200", f"--screenshot={path}", *option, f"file://{page}")
        grey = Image.open(path).convert("L")
        low, high = grey.getextrema()
        assert high - low > 180, mode
        shades[mode] = grey.getpixel((3, 3))
    assert shades["light"] > 240
    assert shades["dark"] < 60


# ------------------------------------------------------------ without a browser


class Tags(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.found += [
            f"{tag} {name}"
            for name in ("src", "href", "srcset", "action", "data")
            if values.get(name) and not str(values[name]).startswith(("#", "data:"))
        ]
        self.found += [f"{tag} {name}" for name in values if name.startswith("on")]


def test_the_page_names_nothing_outside_itself(page: Path) -> None:
    text = page.read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.found == []
    assert len(text.encode()) < 2_000_000
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    assert "default-src 'none'" in text


def test_no_control_character_of_a_record_reaches_the_page(tmp_path: Path) -> None:
    hostile = "NVIDIA \x1b[31mH200\x07\u202e"
    head = made.header({**made.H200, "name": hostile})
    made.write(tmp_path / "records/demo/g/x.jsonl", head, [made.record(gpu=hostile)])
    publish.publish(tmp_path)
    text = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert "NVIDIA" in text and not set("\x1b\x07\u202e") & set(text)


def test_equal_records_make_an_equal_page(page: Path, tmp_path: Path) -> None:
    root = results(tmp_path)
    publish.publish(root, context=CONTEXT)
    assert (root / "report/index.html").read_bytes() == page.read_bytes()
    assert publish.check(root, context=CONTEXT) == ()
    with (root / "report/index.html").open("a") as file:
        file.write("x")
    assert any("index.html is out of date" in line for line in publish.check(root, context=CONTEXT))


def test_without_answers_the_page_says_what_full_reaches(tmp_path: Path) -> None:
    root = results(tmp_path)
    publish.publish(root)
    text = (root / "report/index.html").read_text()
    assert "2000 FLOP/clk/SM, 73.3 % of mma.sync fp16 f32-acc" in text
    assert "Largest effects: copy=half -25.0 %; - copy +20.0 %" in text


def test_a_page_without_records_goes(tmp_path: Path) -> None:
    root = results(tmp_path)
    publish.publish(root)
    for path in (root / "records").rglob("*.jsonl"):
        path.unlink()
    publish.publish(root)
    assert not (root / "report/index.html").exists()


# ------------------------------------------------------------ kept texts


def digest_of(path: Path) -> str:
    return path.name.partition(".")[0]


def test_a_kept_text_comes_back_as_it_was(tmp_path: Path) -> None:
    for text in (FULL, "no end", "", "\n\n", "ends twice\n\n"):
        path = sources.keep(tmp_path, text, HEADERS)
        assert sources.load(tmp_path, digest_of(path)) == text
        assert sources.keep(tmp_path, text, HEADERS) == path
    assert len(list(tmp_path.glob("*.cuh.gz"))) == 1


def test_a_kept_text_that_changed_is_not_shown(tmp_path: Path) -> None:
    path = sources.keep(tmp_path, FULL, HEADERS)
    changed = gzip.decompress(path.read_bytes()).replace(b"line 3", b"line three")
    path.write_bytes(gzip.compress(changed))
    assert sources.load(tmp_path, digest_of(path)) is None
    path = sources.keep(tmp_path / "b", FULL, HEADERS)
    next((tmp_path / "b").glob("*.cuh.gz")).write_bytes(gzip.compress(b"// other\n"))
    assert sources.load(tmp_path / "b", digest_of(path)) is None
    path = sources.keep(tmp_path / "c", FULL, HEADERS)
    path.write_bytes(path.read_bytes()[:-9])
    assert sources.load(tmp_path / "c", digest_of(path)) is None
    assert sources.load(tmp_path, "0" * 64) is None
    assert sources.load(tmp_path, "../../etc/passwd") is None


def test_the_digest_of_a_kept_text_is_that_of_render(tmp_path: Path) -> None:
    import ablations
    from harness.cases import default_cases
    from harness.render import DEVICE_HEADERS, included_headers, render

    study = next(iter(ablations.load().values()))
    source = render(study, default_cases(study)[0])
    path = sources.keep(tmp_path, source.text, included_headers(source.text, DEVICE_HEADERS))
    assert digest_of(path) == source.digest
    assert sources.load(tmp_path, source.digest) == source.text


def test_lines_and_differences_rebuild_both_texts() -> None:
    kept = {"a": FULL, "b": stripped("x") + "one more\n"}
    texts = Texts(kept.get)
    assert texts.add_diff("a", "b")
    assert not texts.add_diff("a", "a")
    assert not texts.add("missing")
    data = texts.as_json()
    for name, text in kept.items():
        lines = [
            line for first, count in data["texts"][name] for line in data["lines"][first : first + count]
        ]
        assert lines == text.splitlines()
    old, new = kept["a"].splitlines(), kept["b"].splitlines()
    built: tuple[list[str], list[str]] = ([], [])
    for tag, i1, i2, j1, j2 in data["diffs"]["a>b"]:
        built[0].extend(old[i1:i2] if tag in "=-" else [])
        built[1].extend(new[j1:j2] if tag in "=+" else [])
    assert built == (old, new)
