"""What can be varied in the attention kernel, in the words that every study of it uses."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Level, Switch

SWITCHES = (
    Switch(
        name="dtype",
        levels=("fp16", "bf16"),
        baseline="fp16",
        label="in",
        meaning="input type of Q, K, V and P",
    ),
    Switch(
        name="head_dim", levels=(64, 128), baseline=64, label="head dim", meaning="columns of Q, K, V and O"
    ),
    Switch(
        name="acc_dtype",
        levels=("f32", "f16"),
        baseline="f32",
        label="acc",
        meaning="accumulator type of both products",
    ),
    Switch(
        name="gemms",
        levels=("both", "qk", "pv"),
        baseline="both",
        label="GEMMs",
        meaning="which products the loop holds; qk adds all tiles' scores, pv takes Q's first columns for P",
    ),
    Switch(
        name="accumulators",
        levels=(1, 2, 4),
        baseline=1,
        label="acc sets",
        meaning="independent accumulator sets that the k steps of Q K^T rotate over, summed after the k loop",
    ),
    Switch(
        name="gmem_copy",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="gmem copy",
        meaning="global to shared copies; stripped: the last tile is copied once and read by every iteration",
    ),
    Switch(
        name="smem_copy",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="smem copy",
        meaning="ldmatrix; stripped: fragments come from a pool of registers, filled once from the last tile",
    ),
    Switch(
        name="barriers",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="barriers",
        meaning="the CTA-wide barrier of each tile; can go only when nothing writes shared memory any more",
    ),
    Switch(
        name="softmax",
        levels=("full", "no_max", "pack_only", "none"),
        baseline="full",
        strips=("no_max", "pack_only", "none"),
        label="softmax",
        meaning="full; no_max: no running maximum; pack_only: scores scaled and converted; none: raw bits",
    ),
)

LEGEND = {
    "gmem_copy=stripped": "attention over the last tile of K and V, once per tile; row sums grow with it",
    "smem_copy=stripped": "attention over tiles built from eight register fragments of the last tile",
    "barriers=stripped": "the same result as without",
    "softmax=no_max": "the same result as full, as long as exp(S) stays in range",
    "softmax=pack_only": "O = fp16(S / 8) V, not normalised",
    "softmax=none": "O = P V, P the fp32 scores' bits read as fp16 pairs (fp16 accumulators: the scores)",
    "gemms=qk": "the sum of all tiles' scores",
    "gemms=pv": "O = P V with P = the first block_n columns of Q, for every tile",
    "accumulators=2": "the same result as full",
    "accumulators=4": "the same result as full",
}


def restricted(**levels: tuple[Level, ...]) -> tuple[Switch, ...]:
    """The switches with only these levels each, the first of them the baseline.

    A switch that is not named keeps its baseline alone.
    """
    found = []
    for switch in SWITCHES:
        kept = levels.get(switch.name, (switch.baseline,))
        strips = tuple(level for level in switch.strips if level in kept[1:])
        found.append(replace(switch, levels=kept, baseline=kept[0], strips=strips))
    return tuple(found)


def resident(levels: tuple[int, ...], baseline: int) -> Switch:
    """The switch of studies that hold each case at a number of CTAs per SM."""
    return Switch(
        name="resident",
        levels=levels,
        baseline=baseline,
        label="CTAs/SM",
        meaning="CTAs that share an SM, held by padding shared memory",
    )


def legend(*entries: str) -> dict[str, str]:
    """These entries of the legend."""
    return {entry: LEGEND[entry] for entry in entries}
