"""How far off estimates were, in words: said by whoever shows one."""

from __future__ import annotations

from collections.abc import Sequence


def how_far_off(spread: Sequence[float], fitted: Sequence[float] = ()) -> str:
    """What loops reached of their estimate: lowest, median and highest of those it was not fitted to, and of
    those that it was, where that is known."""
    low, middle, high = (f"{value:g}" for value in spread)
    if not fitted:
        return f"loops it was not fitted to ran at {low} to {high} of it (median {middle})"
    first, half, last = (f"{value:g}" for value in fitted)
    return (
        f"loops it was fitted to ran at {first} to {last} of it (median {half}), others at {low} to {high} "
        f"({middle})"
    )
