"""CTAs per SM: the arithmetic of the occupancy calculator, the limits, and padding to full's residency."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build.residency import check_dynamic, check_shared, ctas_per_sm, padded_shared
from harness.errors import NotSupportedError


@dataclass(frozen=True)
class FakeLimits:
    cc: tuple[int, int]
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    blocks_per_sm: int = 16
    threads_per_sm: int = 1536
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    shared_granularity_bytes: int = 128
    register_granularity: int = 256
    reserved_shared_bytes: int = 1024


SM80 = FakeLimits((8, 0), 164 * 1024, 163 * 1024, blocks_per_sm=32, threads_per_sm=2048)
SM89 = FakeLimits((8, 9), 100 * 1024, 99 * 1024, blocks_per_sm=24)
SM90 = FakeLimits((9, 0), 228 * 1024, 227 * 1024, blocks_per_sm=32, threads_per_sm=2048)
ALL = (SM80, SM89, SM90)


@pytest.mark.parametrize(
    ("limits", "threads", "registers", "shared", "ctas", "limited"),
    [
        (SM80, 128, 255, 0, 2, ("registers",)),
        (SM80, 128, 128, 0, 4, ("registers",)),
        (
            SM80,
            128,
            129,
            0,
            3,
            ("registers",),
        ),  # 136 registers a thread are given out: 15 warps, of which 12 used
        (SM80, 128, 168, 0, 3, ("registers",)),
        (SM80, 128, 32, 0, 16, ("registers", "threads")),
        (SM80, 32, 16, 0, 32, ("blocks",)),
        (SM89, 128, 128, 48 * 1024, 2, ("shared",)),
        (SM89, 128, 128, 49 * 1024, 2, ("shared",)),
        (SM89, 128, 128, 49 * 1024 + 1, 1, ("shared",)),
        (SM89, 256, 40, 0, 6, ("registers", "threads")),
        (SM90, 128, 168, 80 * 1024, 2, ("shared",)),
        (SM90, 96, 255, 0, 2, ("registers",)),
        (SM90, 1024, 64, 0, 1, ("registers",)),
    ],
)
def test_ctas_per_sm(
    limits: FakeLimits, threads: int, registers: int, shared: int, ctas: int, limited: tuple[str, ...]
) -> None:
    found = ctas_per_sm(limits, threads=threads, registers=registers, shared_bytes=shared)
    assert (found.ctas, found.limited_by) == (ctas, limited)


@pytest.mark.parametrize("total", [49151, 49152, 49153, 101376])
def test_shared_memory_up_to_the_limit_fits_on_sm_89(total: int) -> None:
    check_shared(SM89, total)
    assert ctas_per_sm(SM89, threads=128, registers=64, shared_bytes=total).ctas >= 1


@pytest.mark.parametrize(
    ("limits", "total", "limit"),
    [(SM89, 101377, 101376), (SM89, 131072, 101376), (SM80, 166913, 166912), (SM90, 232449, 232448)],
)
def test_too_much_shared_memory_is_refused_with_both_numbers(
    limits: FakeLimits, total: int, limit: int
) -> None:
    with pytest.raises(NotSupportedError, match=f"{total} .*{limit}"):
        ctas_per_sm(limits, threads=128, registers=64, shared_bytes=total)
    assert ctas_per_sm(limits, threads=128, registers=64, shared_bytes=limit).ctas == 1


@pytest.mark.parametrize("dynamic", [-16, 1, 49151, 49153, 101377, 232449])
def test_odd_sizes_are_refused_before_any_launch(dynamic: int) -> None:
    with pytest.raises(NotSupportedError, match=str(dynamic)):
        check_dynamic(dynamic)
    check_dynamic(49152)


def test_a_cta_that_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(NotSupportedError, match=r"256 registers .* 255"):
        ctas_per_sm(SM80, threads=128, registers=256, shared_bytes=0)
    with pytest.raises(NotSupportedError, match=r"512 threads, 255 registers .* 65536"):
        ctas_per_sm(SM80, threads=512, registers=255, shared_bytes=0)
    with pytest.raises(NotSupportedError, match=r"2049 threads, .* 1536 threads"):
        ctas_per_sm(SM89, threads=2049, registers=16, shared_bytes=0)


def test_the_hardware_check_rounds_the_warps_up_to_the_parts_of_the_register_file() -> None:
    # 9 warps of 176 registers would fit, but are checked as 12.
    assert ctas_per_sm(SM80, threads=256, registers=176, shared_bytes=0).ctas == 1
    with pytest.raises(NotSupportedError):
        ctas_per_sm(SM80, threads=288, registers=176, shared_bytes=0)


kernel = st.fixed_dictionaries(
    {
        "threads": st.sampled_from([32, 64, 96, 128, 256]),
        "registers": st.integers(16, 200),
        "static_bytes": st.integers(0, 4096),
        "dynamic_bytes": st.integers(0, 3000).map(lambda n: 16 * n),
    }
)


@given(limits=st.sampled_from(ALL), case=kernel, want=st.integers(1, 12))
def test_padding_is_the_smallest_that_holds_the_residency(
    limits: FakeLimits, case: dict[str, int], want: int
) -> None:
    def resident(dynamic_bytes: int) -> int:
        total = case["static_bytes"] + dynamic_bytes
        return ctas_per_sm(
            limits, threads=case["threads"], registers=case["registers"], shared_bytes=total
        ).ctas

    natural = resident(case["dynamic_bytes"])
    padded = padded_shared(limits, **case, want=want)
    if natural <= want:
        assert padded == case["dynamic_bytes"]
        return
    assert padded > case["dynamic_bytes"] and padded % 16 == 0
    assert resident(padded) == want
    assert resident(padded - 16) > want


@given(limits=st.sampled_from(ALL), case=kernel)
def test_more_registers_or_more_shared_memory_never_fit_better(
    limits: FakeLimits, case: dict[str, int]
) -> None:
    def resident(registers: int, shared_bytes: int) -> int:
        return ctas_per_sm(
            limits, threads=case["threads"], registers=registers, shared_bytes=shared_bytes
        ).ctas

    registers, shared = case["registers"], case["dynamic_bytes"]
    assert resident(registers + 8, shared) <= resident(registers, shared)
    assert resident(registers, shared + 128) <= resident(registers, shared)


def test_padding_to_no_cta_at_all_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="at least 1"):
        padded_shared(SM80, threads=128, registers=64, static_bytes=0, dynamic_bytes=0, want=0)


def test_the_chips_table_fits_the_shape_that_is_asked_here() -> None:
    chips = pytest.importorskip("harness.chips")
    limits = chips.limits((8, 9))
    assert ctas_per_sm(limits, threads=128, registers=255, shared_bytes=101376).ctas == 1
    with pytest.raises(NotSupportedError, match=r"131072 .* 101376 .* 8\.9"):
        ctas_per_sm(limits, threads=128, registers=255, shared_bytes=131072)


def test_the_arithmetic_follows_its_inputs() -> None:
    roomy = replace(SM80, registers_per_sm=2 * 65536)
    assert ctas_per_sm(roomy, threads=128, registers=255, shared_bytes=0).ctas == 4
