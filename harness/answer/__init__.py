"""From records to an answer: what each part costs, what binds, and what a chip could reach. Pure, no GPU."""

from harness.answer.attribute import attribute
from harness.answer.costs import Amount
from harness.answer.decide import Decision, Evidence, Exposed, Gain, decide
from harness.answer.evidence import Ceiling, ceiling_of, ceilings, light_clocks
from harness.answer.group import Group, groups, latest_groups
from harness.answer.lattice import Lattice, Shape, orders, shape_of, share_weights
from harness.answer.result import Attribution, Marginal, Row
from harness.answer.verdict import Verdict, as_json, judge, verdicts

__all__ = [
    "Amount",
    "Attribution",
    "Ceiling",
    "Decision",
    "Evidence",
    "Exposed",
    "Gain",
    "Group",
    "Lattice",
    "Marginal",
    "Row",
    "Shape",
    "Verdict",
    "as_json",
    "attribute",
    "ceiling_of",
    "ceilings",
    "decide",
    "groups",
    "judge",
    "latest_groups",
    "light_clocks",
    "orders",
    "shape_of",
    "share_weights",
    "verdicts",
]
