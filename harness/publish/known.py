"""What the caller knows of the studies today: the order of their cases, their parts, their present texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Record -> digest of the text its template renders today; "" when it renders none any more; None when nobody
# can say (a study that is not here).
Current = Callable[[Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """One study as tables need it.

    Args:
        cases: names in the order of the rows. parts: switch that strips -> its stripping levels, the least
        removed first; every other switch is an axis.
    """

    cases: Sequence[str] = ()
    parts: Mapping[str, Sequence[Any]] = field(default_factory=dict)


Known = Mapping[str, StudyFacts]
