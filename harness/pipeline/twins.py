"""The numbers of each case checked on the CPU, where there is no GPU to check them on.

The twin does not depend on the architecture: one answer serves them all. It is kept by the digests of the
kernel's text, of the twin and of the studies, so that a second run takes no time.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.build.cache import Cache
from harness.check.twin import run_twin, twin_available, twin_version
from harness.check.verify import compare
from harness.errors import AblationError
from harness.key import digest
from harness.model import Case, Check, Study, Values
from harness.pipeline.rows import Record, check_row
from harness.progress import Ui
from harness.render import render

# The awkward size has everything the small one has, and short tiles of rows and of keys.
SIZE = "awkward"
SEED = 0


def cpu_checks(study: Study, cases: Sequence[Case], cache: Cache, ui: Ui) -> Mapping[str, Record]:
    """Case name -> the check of its CPU twin; nothing, and a note, where no twin can run."""
    reason = twin_available()
    if reason:
        ui.note(f"numbers are not checked on this CPU: {reason}")
        return {}
    distinct = {case.name: case for case in cases if case.skip is None}
    checks: dict[str, Record] = {}
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        ui.stage(f"verify {study.name} on the CPU", len(distinct)) as advance,
    ):
        futures = {pool.submit(partial(_kept, study, case, cache)): name for name, case in distinct.items()}
        for future in as_completed(futures):
            name = futures[future]
            check = future.result()
            if check is not None:
                checks[name] = check
            advance(name)
    remarks = [(name, str(checks[name]["message"])) for name in sorted(checks) if _is_remark(checks[name])]
    if remarks:
        (name, message), more = remarks[0], len(remarks) - 1
        ui.note(f"{study.name}/{name}: {message}" + (f" (and {more} more cases have some)" if more else ""))
    return checks


def _is_remark(check: Record) -> bool:
    """Whether the numbers are right, yet something is to be said."""
    return bool(check["passed"] and check["message"])


def _kept(study: Study, case: Case, cache: Cache) -> Record | None:
    """The check of one case, from the cache or anew; None where the text cannot even be rendered."""
    try:
        source = render(study, case)
    except AblationError:
        return None
    key = digest(source.digest, twin_version(), *_study_texts(study), SIZE, str(SEED))
    kept = cache.get("check", key)
    if kept is not None:
        return dict(json.loads(kept))
    row = check_row(_check(study, case, cache))
    cache.put("check", key, json.dumps(row, allow_nan=False).encode())
    return row


def _study_texts(study: Study) -> list[str]:
    """What a reference may depend on: every module beside the study's."""
    folder = Path(inspect.getfile(study.reference)).parent
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]


def _check(study: Study, case: Case, cache: Cache) -> Check:
    sizes: Values = study.check_sizes(case)[SIZE]
    inputs = study.inputs(case, sizes, study.fill(case, "check"), SEED)
    try:
        launch, outputs = study.launch(case, sizes), study.outputs(case, sizes)
        result = run_twin(render(study, case), launch, inputs, outputs, cache)
    except AblationError as error:
        return Check(
            size="cpu", sizes=sizes, passed=False, worst=float("inf"), exact=False, message=error.message
        )
    check = compare(result.outputs, study.reference(case, sizes, inputs, None)).check("cpu", sizes)
    if result.faults:
        return replace(check, passed=False, message=result.faults[0].message)
    if check.passed and result.conflicts:  # right numbers, but slower than the part it stands for
        return replace(check, message=result.conflicts[0])
    return check
