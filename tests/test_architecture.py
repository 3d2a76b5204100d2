"""Which module may know which: read from the imports, not from intentions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ablations

ROOT = Path(__file__).resolve().parent.parent
HARNESS = sorted((ROOT / "harness").rglob("*.py"))
STUDIES = sorted((ROOT / "ablations").rglob("*.py"))

# Steps on the way from a case to a table. Values pass between them; only the pipeline joins them.
STAGES = ("build", "check", "gpu", "engine", "answer", "publish", "compare", "profile")
DEVICE_PACKAGES = {"cupy", "cupyx", "pynvml"}
# They only ask whether a package is there, inside a function, and take any answer.
MAY_ASK_FOR_DEVICE = {"harness.doctor", "harness.probes"}
# The record format names these two levels: a study that has them gets its peak from them.
# "pipes" is a key of predicted rows too.
NAMES_OF_THE_FORMAT = {"dtype", "acc_dtype", "pipes"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of all that a file imports, at any depth of nesting."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            name = ".".join(part for part in (base, node.module or "") if part)
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def stage_of(name: str) -> str | None:
    head, _, rest = name.partition(".")
    stage = rest.partition(".")[0]
    return stage if head == "harness" and stage in STAGES else None


def test_the_walk_sees_relative_and_nested_imports(tmp_path: Path) -> None:
    found = {name for path in HARNESS for _, name in imports(path)}
    assert "harness.errors.UsageError" in found
    assert "cupy" in {name.partition(".")[0] for name in found}


def test_only_the_device_stage_imports_the_device() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in [*HARNESS, *STUDIES]
        for line, name in imports(path)
        if name.partition(".")[0] in DEVICE_PACKAGES
        and stage_of(module_of(path)) != "gpu"
        and module_of(path) not in MAY_ASK_FOR_DEVICE
    ]
    assert wrong == []


def test_no_stage_imports_another() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: stage {own} imports {name}"
        for path in HARNESS
        if (own := stage_of(module_of(path)))
        for line, name in imports(path)
        if (other := stage_of(name)) and other != own
    ]
    assert wrong == []


def test_studies_are_definitions_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in STUDIES
        for line, name in imports(path)
        if stage_of(name) or name.startswith(("harness.pipeline", "harness.cli", "harness.store"))
    ]
    assert wrong == []


def test_only_the_command_line_knows_the_studies() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in HARNESS
        for line, name in imports(path)
        if name.partition(".")[0] == "ablations" and not module_of(path).startswith("harness.cli")
    ]
    assert wrong == []


def test_no_study_or_switch_is_named_in_the_harness() -> None:
    studies = ablations.load().values()
    names = {study.name for study in studies} | {s.name for study in studies for s in study.switches}
    assert len(names) > 5
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        for path in HARNESS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names - NAMES_OF_THE_FORMAT
    ]
    assert wrong == []


def test_only_the_command_line_and_tables_print() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*HARNESS, *STUDIES]
        if not module_of(path).startswith(("harness.cli", "harness.publish", "harness.__main__"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert wrong == []
