"""What is asked: one module per study. Its docstring is the question, its STUDY the definition."""

from __future__ import annotations

import importlib
import pkgutil

from harness.errors import StudyError
from harness.model import Study


def load() -> dict[str, Study]:
    """Every study of this package, by name, in the order of the modules' names.

    A module that has a `STUDY` is a study; one without, or with a leading underscore, is a helper.
    Raises StudyError when two modules define the same name.
    """
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return collect(
        {name: getattr(importlib.import_module(f"{__name__}.{name}"), "STUDY", None) for name in names}
    )


def collect(modules: dict[str, Study | None]) -> dict[str, Study]:
    """Module name -> its study, as study name -> study; StudyError for a name given twice."""
    studies: dict[str, Study] = {}
    owner: dict[str, str] = {}
    for module, study in modules.items():
        if study is None:
            continue
        if study.name in studies:
            raise StudyError(
                f"ablations/{module}.py and ablations/{owner[study.name]}.py both define {study.name!r}"
            )
        studies[study.name], owner[study.name] = study, module
    return studies
