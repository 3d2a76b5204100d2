"""Where a story's rows are: the sections of each GPU, and effects between any two of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.chips import Chip, chip, peak
from harness.publish.columns import Row
from harness.publish.contrast import between
from harness.publish.derive import product_of
from harness.publish.labels import OTHER_CONFIGURATIONS
from harness.publish.section import Section, largest_sections
from harness.story import Spot

Effect = Mapping[str, Any]


class Rows:
    """The rows of one GPU: of each study its largest table, what was measured before what was predicted."""

    def __init__(self, gpu: str, made: Sequence[Section], studies: Sequence[str]) -> None:
        self.gpu = gpu
        self.sections = {
            study: section
            for (study, on), section in largest_sections(made).items()
            if on == gpu and study in studies
        }

    @property
    def predicted(self) -> bool:
        """Whether nothing of it was measured."""
        return all(section.predicted for section in self.sections.values())

    @property
    def place(self) -> str:
        """The product's name in the data of the chips, which an order may be given in."""
        product = self.product
        return product.name if product else self.gpu

    @property
    def name(self) -> str:
        """What people call the GPU."""
        product = self.product
        return product.aliases[0] if product and product.aliases else self.gpu.removeprefix("NVIDIA ")

    @property
    def product(self) -> Chip | None:
        """What is known of the GPU; None where it is no known product."""
        headers = [section.headers[-1] for section in self.sections.values() if not section.predicted]
        return product_of(headers[0]) if headers else chip(self.gpu)

    @property
    def rate(self) -> str:
        """ "full rate", "half rate": of fp32 accumulators against fp16's; "" where it is not known."""
        product = self.product
        rates = [product and peak(product, "mma.sync", "fp16", acc) for acc in ("f32", "f16")]
        if not rates[0] or not rates[1]:
            return ""
        return "full rate" if rates[0].flop_clk_sm == rates[1].flop_clk_sm else "half rate"

    def row(self, spot: Spot) -> Row | None:
        """The first row with exactly these levels, whatever came of it; None where there is none."""
        section = self.sections.get(spot.study)
        rows = section.rows if section else ()
        wanted = dict(spot.levels)
        return next(
            (r for r in rows if dict(r["levels"]) == wanted and r["set"] != OTHER_CONFIGURATIONS), None
        )

    def full_of(self, row: Row) -> Row | None:
        """The row that it is compared with."""
        section = self.sections[str(row["study"])]
        return next((r for r in section.rows if r["case"] == row["full"] and r["arch"] == row["arch"]), None)

    def effects(self, pairs: Sequence[tuple[Spot, Spot | None]]) -> list[Effect | None]:
        """The effect of each spot over the other, or over its own full case; None where no run timed both."""
        found: list[Effect | None] = [None] * len(pairs)
        asked: dict[str, list[tuple[int, str, str]]] = {}
        for number, (spot, against) in enumerate(pairs):
            row, other = self.row(spot), None if against is None else self.row(against)
            if row is None or (against is not None and other is None):
                continue
            if other is None:
                found[number] = row if row.get("effect") else None
            else:
                case, base = str(row["case"]), str(other["case"])
                asked.setdefault(spot.study, []).append((number, case, base))
        for study, members in asked.items():
            records = self.sections[study].records
            judged = between(records, [(case, base) for _, case, base in members])
            for (number, _, _), effect in zip(members, judged, strict=True):
                found[number] = effect
        return found


def effect_words(effect: Effect | None) -> str:
    """`+5.7 % faster (+3.8 to +7.7)`; the word and the interval where it is no change; "" without any."""
    if not effect:
        return ""
    word, low, high = effect["effect"], effect["effect_low"], effect["effect_high"]
    change = f"{effect['effect_percent']:+.1f} % " if word in ("faster", "slower") else ""
    return f"{change}{word}" + ("" if low is None or high is None else f" ({low:+.1f} to {high:+.1f})")
