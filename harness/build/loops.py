"""Which backward branches of a kernel close a loop. Works on indices, knows no instruction set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import pairwise


def closed_loops(count: int, targets: Mapping[int, int], ends: Set[int]) -> Iterator[tuple[int, int]]:
    """(first, last) instruction of every loop, by the branch that closes it.

    A branch to itself (the trap after the last EXIT) is none. Nor is a backward branch which the kernel can
    reach without passing its target: ptxas puts slow paths (of a shuffle, of a division) behind the last
    EXIT, and these jump back into the middle of a loop.

    Args:
        count: number of instructions.
        targets: instruction -> the instruction it may branch to.
        ends: instructions after which control never falls through.
    """
    backward = [(target, branch) for branch, target in targets.items() if target < branch < count]
    if not backward:
        return
    starts = _block_starts(count, targets, ends)
    before = _predecessors(starts, count, targets, ends)
    block_of = {start: index for index, start in enumerate(starts)}
    ends_of = {end - 1: index for index, (_, end) in enumerate(pairwise([*starts, count]))}
    for target, branch in sorted(backward):
        if _dominated(block_of[target], ends_of[branch], before):
            yield target, branch


def always_run(first: int, last: int, targets: Mapping[int, int], ends: Set[int]) -> list[tuple[int, int]]:
    """(start, end) of the stretches of a loop that every trip runs, however its branches go; end excluded.

    A trip goes from `first` to any branch back to it. Ways that leave first..last are not looked at: what
    comes back from there (a slow path) has done the work of what it left out.
    """
    inside = {b: t for b, t in targets.items() if first <= b <= last and first <= t <= last}
    starts = {first, *inside.values(), *(b + 1 for b in targets), *(e + 1 for e in ends)}
    bounds = sorted(start for start in starts if first <= start <= last)
    blocks = list(pairwise([*bounds, last + 1]))
    index = {start: i for i, (start, _) in enumerate(blocks)}
    after: list[set[int]] = [set() for _ in blocks]
    for i, (_, end) in enumerate(blocks):
        if end - 1 not in ends and end in index:
            after[i].add(index[end])
        if end - 1 in inside:
            after[i].add(index[inside[end - 1]])
    return [block for i, block in enumerate(blocks) if not _comes_round(after, without=i)]


def _comes_round(after: list[set[int]], *, without: int) -> bool:
    """Whether a way from block 0 back to block 0 misses block `without`."""
    if without == 0:
        return False
    seen: set[int] = set()
    waiting = [0]
    while waiting:
        for block in after[waiting.pop()]:
            if block == 0:
                return True
            if block != without and block not in seen:
                seen.add(block)
                waiting.append(block)
    return False


def _block_starts(count: int, targets: Mapping[int, int], ends: Set[int]) -> list[int]:
    """The first instruction of each basic block, ascending."""
    starts = {0, *targets.values(), *(branch + 1 for branch in targets), *(end + 1 for end in ends)}
    return sorted(start for start in starts if 0 <= start < count)


def _predecessors(
    starts: list[int], count: int, targets: Mapping[int, int], ends: Set[int]
) -> list[list[int]]:
    """For each basic block, the blocks that control may come from."""
    block_of = {start: index for index, start in enumerate(starts)}
    before: list[list[int]] = [[] for _ in starts]
    for index, (_, end) in enumerate(pairwise([*starts, count])):
        last = end - 1
        if last not in ends and end in block_of:
            before[block_of[end]].append(index)
        if last in targets and targets[last] in block_of:
            before[block_of[targets[last]]].append(index)
    return before


def _dominated(head: int, tail: int, before: list[list[int]]) -> bool:
    """Whether every way from the entry (block 0) to `tail` passes `head`."""
    seen = {head}
    waiting = [tail]
    while waiting:
        block = waiting.pop()
        if block in seen:
            continue
        if block == 0:
            return False
        seen.add(block)
        waiting += before[block]
    return True
