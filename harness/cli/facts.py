"""What tables need to know of the studies: order, parts, and the texts that their templates render today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.cases import default_cases, make_case
from harness.cli.choose import load_studies
from harness.errors import AblationError
from harness.key import digest_mapping
from harness.model import Study, Values
from harness.publish import Current, StudyFacts
from harness.render import render


def study_facts(names: Sequence[str] = ()) -> dict[str, StudyFacts]:
    """Study name -> its cases in the order of a table's rows, over all its problems, and its parts."""
    studies = load_studies()
    return {
        name: StudyFacts(
            cases=tuple(
                dict.fromkeys(c.name for problem in study.problems for c in default_cases(study, problem))
            ),
            parts={switch.name: switch.strips for switch in study.switches if switch.is_part},
        )
        for name, study in studies.items()
        if not names or name in names
    }


def digest_today() -> Current:
    """Record -> digest of what its template renders today; "" when it cannot, None for an unknown study."""
    studies = load_studies()
    known: dict[str, str] = {}

    def current(record: Mapping[str, Any]) -> str | None:
        study = studies.get(str(record.get("study")))
        if study is None:
            return None
        asked = {name: record.get(name) for name in ("levels", "configuration", "problem", "perturbation")}
        key = digest_mapping({"study": study.name, **asked})
        if key not in known:
            known[key] = _digest(study, record)
        return known[key]

    return current


def _digest(study: Study, record: Mapping[str, Any]) -> str:
    levels, configuration = Values(record.get("levels") or {}), Values(record.get("configuration") or {})
    try:
        case = make_case(study, levels, configuration, set_name="", problem=str(record.get("problem") or ""))
        return render(study, case, int(record.get("perturbation") or 0)).digest
    except (AblationError, KeyError, TypeError, ValueError):
        return ""  # the study has no such case any more
