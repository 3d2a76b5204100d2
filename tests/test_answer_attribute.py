"""Attribution over lattices whose answer is known, and over the tables of earlier measurements."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.answer import Attribution, attribute, groups, orders, shape_of, share_weights
from harness.model import Study, Values
from tests.answer_files import file_of, lattice_records, study, timed

PARTS = ("copy", "read", "exp")
WORTH = {"copy": 1.0, "read": 2.0, "exp": 4.0}
FLOOR = 10.0


def attributed(records: list[dict[str, Any]], of: Study) -> Attribution:
    (group,) = groups(file_of(records))
    levels = Values({s.name: s.baseline for s in of.switches})
    found = attribute(group, shape_of(of, levels, Values()))
    assert found is not None
    return found


def near(amount: Any, value: float) -> None:
    assert amount is not None
    assert amount.value == pytest.approx(value, abs=0.05)
    assert amount.low - 0.02 <= value <= amount.high + 0.02


def test_additive_parts_are_exposed_whole_and_share_alike() -> None:
    found = attributed(
        lattice_records(PARTS, lambda s: FLOOR + sum(w for p, w in WORTH.items() if p not in s)),
        study(*PARTS),
    )
    assert found.unit == "SM cycles per MMA" and found.no_share == "" and found.missing == ()
    assert found.full == pytest.approx(17, rel=0.01)
    for part, worth in WORTH.items():
        row = found.row(part)
        near(row.exposed, worth)
        near(row.intrinsic, worth)
        near(row.share, worth)
        assert row.exposed is not None and row.exposed.clear
        assert row.relation in ("overlap", "within noise", "synergy")
        assert row.overlap is None or abs(row.overlap.value) < 0.05


def test_shares_add_up_to_full_minus_floor() -> None:
    found = attributed(
        lattice_records(PARTS, lambda s: FLOOR + sum(w for p, w in WORTH.items() if p not in s) ** 1.5),
        study(*PARTS),
    )
    assert found.total is not None
    shares = [row.share.value for row in found.rows if row.share]
    assert len(shares) == 3 and sum(shares) == pytest.approx(found.total.value, rel=1e-9)


def test_overlapped_parts_show_no_exposed_cost_and_full_overlap() -> None:
    # All three run beside the floor and only the longest is seen: nothing is exposed but the last one.
    found = attributed(
        lattice_records(
            PARTS, lambda s: FLOOR + max((w for p, w in WORTH.items() if p not in s), default=0.0)
        ),
        study(*PARTS),
    )
    copy, exp = found.row("copy"), found.row("exp")
    near(copy.exposed, 0)
    near(copy.intrinsic, 1)
    assert copy.exposed is not None and not copy.exposed.clear
    assert copy.overlap is None  # an exposed cost within noise has no ratio; the difference is shown
    near(copy.difference, -1)
    near(exp.exposed, 2)
    near(exp.intrinsic, 4)
    assert exp.relation == "overlap" and exp.overlap is not None
    assert exp.overlap.value == pytest.approx(0.5, abs=0.05)
    near(copy.share, 1 / 3)  # max game of 1, 2, 4: 1/3, 1/3 + 1/2, 1/3 + 1/2 + 2
    near(found.row("read").share, 1 / 3 + 1 / 2)
    near(exp.share, 1 / 3 + 1 / 2 + 2)


def test_parts_that_need_each_other_are_called_synergy() -> None:
    # Reading and exponentials are free alone and cost three together: both are exposed, neither is intrinsic.
    found = attributed(
        lattice_records(("exp", "read"), lambda s: FLOOR + (0.0 if s else 3.0)), study("exp", "read")
    )
    row = found.row("read")
    near(row.exposed, 3)
    near(row.intrinsic, 0)
    near(row.share, 1.5)
    assert row.relation == "synergy" and row.overlap is None
    near(row.difference, 3)


def test_a_removal_that_slows_down_is_a_codegen_effect() -> None:
    found = attributed(
        lattice_records(("exp", "read"), lambda s: FLOOR + ("exp" not in s) * 4 + ("read" in s) * 1.0),
        study("exp", "read"),
    )
    row = found.row("read")
    near(row.exposed, -1)
    near(row.share, -1)
    assert row.relation == "code generation" and row.overlap is None


def test_a_part_that_can_only_go_after_another_gets_its_row_with_it() -> None:
    of = study("barrier", "copy", "exp", after={"barrier": "copy"})
    worth = {"barrier": 1.0, "copy": 2.0, "exp": 4.0}
    found = attributed(
        lattice_records(
            worth,
            lambda s: FLOOR + sum(w for p, w in worth.items() if p not in s),
            allowed=lambda s: "barrier" not in s or "copy" in s,
        ),
        of,
    )
    assert found.no_share == ""
    alone, joint = found.row("barrier"), found.row("barrier", "copy")
    assert alone.exposed is None and found.row("copy").intrinsic is None
    near(alone.intrinsic, 1)
    near(found.row("copy").exposed, 2)
    near(joint.exposed, 3)
    near(joint.intrinsic, 3)
    for part, value in worth.items():
        near(found.row(part).share, value)


def test_precedence_decides_whose_a_joint_cost_is() -> None:
    # The barrier costs nothing by itself once the copy is gone: all of it is the copy's.
    sets = [frozenset(), frozenset({"copy"}), frozenset({"copy", "barrier"})]
    assert orders(sets) == (("copy", "barrier"),)
    assert share_weights(sets) == {
        "copy": {sets[0]: 1.0, sets[1]: -1.0},
        "barrier": {sets[1]: 1.0, sets[2]: -1.0},
    }


def test_a_missing_set_is_never_imputed() -> None:
    records = lattice_records(PARTS, lambda s: FLOOR + 3 - len(s))
    gone = [r for r in records if r["case"] != "copy=stripped,exp=stripped"]
    found = attributed(gone, study(*PARTS))
    assert found.no_share == "1 of 8 sets were not measured"
    assert found.missing == ("copy + exp: not run",)
    assert all(row.share is None for row in found.rows)
    assert found.row("read").intrinsic is None and found.row("read").exposed is not None


def test_no_share_where_full_minus_floor_is_noise() -> None:
    found = attributed(lattice_records(PARTS, lambda s: FLOOR, noise=0.01), study(*PARTS))
    assert found.no_share == "full minus floor is within noise"
    assert not any(row.exposed and row.exposed.clear for row in found.rows)


def test_builds_that_differ_widen_every_interval() -> None:
    def cost(s: frozenset[str]) -> float:
        return FLOOR + 0.4 * (3 - len(s))

    quiet = attributed(lattice_records(PARTS, cost), study(*PARTS)).row("exp").exposed
    shaky = (
        attributed(lattice_records(PARTS, cost, builds=(0.96, 1.0, 1.04)), study(*PARTS)).row("exp").exposed
    )
    assert quiet is not None and shaky is not None
    assert quiet.clear and not shaky.clear
    assert shaky.high - shaky.low > 5 * (quiet.high - quiet.low)


def test_the_order_of_records_changes_nothing() -> None:
    records = lattice_records(PARTS, lambda s: FLOOR + 3 - len(s), builds=(0.99, 1.0, 1.01))
    before = attributed(records, study(*PARTS))
    random.Random(4).shuffle(records)
    assert attributed(records, study(*PARTS)) == before


def test_a_strip_that_also_removes_spills_is_marked() -> None:
    records = lattice_records(("exp", "read"), lambda s: FLOOR + 2 - len(s))
    for made in records:
        made["build"] = {**made["build"], "spill_loads": 0 if "read=stripped" in made["case"] else 12}
    found = attributed(records, study("exp", "read"))
    assert found.row("read").confounded == "also removes spills"
    assert found.row("exp").confounded == ""


def test_the_floor_is_the_depth_that_leaves_least() -> None:
    of = study("exp", "read", levels={"exp": ("packed", "none")})

    def records(depth: str, cost: dict[tuple[bool, bool], float]) -> list[dict[str, Any]]:
        made = []
        for (exp, read), cycles in cost.items():
            levels = {
                "exp": depth if exp else "kept",
                "read": "stripped" if read else "kept",
                "chains": 1,
            }
            name = ",".join(f"{k}={v}" for k, v in levels.items() if v not in ("kept", 1)) or "full"
            made += timed(name, cycles, levels)
        return made

    packed = records("packed", {(False, False): 14, (True, False): 12, (False, True): 13, (True, True): 10})
    bare = records("none", {(True, False): 12.5, (True, True): 11})
    found = attributed(packed + bare, of)
    assert found.depth == {"exp": "packed", "read": "stripped"} and found.no_share == ""
    assert [(m.before, m.after) for m in found.marginals] == [("kept", "packed"), ("packed", "none")]
    near(found.marginals[0].cost, 2)
    near(found.marginals[1].cost, -0.5)
    deeper = attributed([*packed[:-1], *bare], of)
    assert deeper.depth["exp"] == "none"  # complete beats lower


# FLOP/clk/SM of an earlier prototype, head dim 128 and 64; costs are in units of the ideal MMA time, 2731.
PROTOTYPE = {
    128: {"": 1724, "c": 1807, "bc": 1886, "r": 2011, "e": 2118, "bcr": 2105, "bce": 2410, "bcer": 2624},
    64: {"": 1541, "c": 1574, "bc": 1654, "r": 1572, "e": 2050, "bcr": 1741, "bce": 2411, "bcer": 2569},
}


@pytest.mark.parametrize(
    ("head_dim", "exposed", "intrinsic"),
    [
        (128, {"softmax": 0.29, "ldmatrix": 0.23, "copies": 0.14}, {"softmax": 0.26, "ldmatrix": 0.09}),
        (64, {"softmax": 0.44, "ldmatrix": 0.035, "copies": 0.12}, {"softmax": 0.506, "ldmatrix": 0.07}),
    ],
)
def test_the_prototype_tables_come_out_as_they_were_read(
    head_dim: int, exposed: dict[str, float], intrinsic: dict[str, float]
) -> None:
    names = {"b": "barrier", "c": "copy", "e": "softmax", "r": "ldmatrix"}
    of = study(*sorted(names.values()), after={"barrier": "copy"})
    records = []
    for stripped, rate in PROTOTYPE[head_dim].items():
        levels = {name: "stripped" if letter in stripped else "kept" for letter, name in names.items()}
        name = ",".join(f"{k}=stripped" for k in sorted(levels) if levels[k] == "stripped") or "full"
        records += timed(name, 2731 / rate, {**levels, "chains": 1}, noise=0.0005)
    found = attributed(records, of)
    rows = {"softmax": ("softmax",), "ldmatrix": ("ldmatrix",), "copies": ("barrier", "copy")}
    for name, value in exposed.items():
        amount = found.row(*rows[name]).exposed
        assert amount is not None and amount.value == pytest.approx(value, abs=0.006)
    for name, value in intrinsic.items():
        amount = found.row(*rows[name]).intrinsic
        assert amount is not None and amount.value == pytest.approx(value, abs=0.006)
    assert found.no_share.endswith("of 12 sets were not measured")


def test_a_kernel_at_its_mma_floor_shows_flat_strips() -> None:
    # An earlier wgmma kernel at head dim 128: whatever one removed, 3820 to 3836 stayed.
    rates = {"": 3824, "exp": 3836, "copy": 3833, "copy,exp": 3833}
    records = []
    for stripped, rate in rates.items():
        gone = set(stripped.split(",")) - {""}
        levels = {name: "stripped" if name in gone else "kept" for name in ("copy", "exp")} | {"chains": 1}
        name = ",".join(f"{k}=stripped" for k in sorted(gone)) or "full"
        records += timed(name, 4096 / rate, levels, noise=0.002)
    found = attributed(records, study("copy", "exp"))
    assert found.no_share == "full minus floor is within noise"
    assert not any(row.exposed and row.exposed.clear for row in found.rows)


# An earlier wgmma kernel that rescales every tile: the softmax chain shows, more in full than alone.
CHAINED = {"": 3449, "exp": 3932, "copy": 3647, "copy,exp": 3944}


def test_a_softmax_chain_costs_more_in_company_than_alone() -> None:
    records = []
    for stripped, rate in CHAINED.items():
        gone = set(stripped.split(",")) - {""}
        levels = {name: "stripped" if name in gone else "kept" for name in ("copy", "exp")} | {"chains": 1}
        name = ",".join(f"{k}=stripped" for k in sorted(gone)) or "full"
        records += timed(name, 4096 / rate, levels, noise=0.001)
    found = attributed(records, study("copy", "exp"))
    chain, copy = found.row("exp"), found.row("copy")
    near(chain.exposed, 4096 / 3449 - 4096 / 3932)
    near(chain.intrinsic, 4096 / 3647 - 4096 / 3944)
    assert chain.relation == "synergy" and copy.relation in ("synergy", "within noise")
    assert chain.share is not None and copy.share is not None and found.total is not None
    assert chain.share.value == pytest.approx(0.115, abs=0.005)
    assert chain.share.value + copy.share.value == pytest.approx(found.total.value)


def test_a_complete_lattice_comes_before_a_lower_floor() -> None:
    of = study("exp", "read", levels={"exp": ("packed", "none")})

    def made(cycles: float, exp: str = "kept", read: str = "kept") -> list[dict[str, Any]]:
        return timed(f"{exp},{read}", cycles, {"exp": exp, "read": read, "chains": 1}, full="kept,kept")

    common = [*made(14), *made(13, read="stripped")]
    none = [*made(12, "none"), *made(11, "none", "stripped")]
    found = attributed([*common, *none, *made(10, "packed", "stripped")], of)
    assert found.depth["exp"] == "none" and found.no_share == ""


def test_another_configuration_is_no_member_of_the_lattice() -> None:
    records = lattice_records(("exp", "read"), lambda s: FLOOR + 2 - len(s))
    levels = {"exp": "stripped", "read": "kept", "chains": 1}
    other = timed("a", 3.0, levels, configuration={"block_m": 64})
    assert attributed([*other, *records], study("exp", "read")) == attributed(records, study("exp", "read"))
