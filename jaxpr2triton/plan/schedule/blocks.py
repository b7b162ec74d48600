"""How many elements along each axis a program holds at once, where no loop carries anything from step to step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.plan.schedule.draft import Draft
from jaxpr2triton.plan.schedule.tiles import power_of_two

RESIDENT = 16384  # 4-byte elements of one tile that may stay in registers
RESIDENT_CROSSED = 8192  # … where what is loaded waits for the sum of its row, and is then summed across
STREAMED = 4096  # elements of a tile in a loop
POINTWISE_BLOCK = 1024
PROGRAMS_WANTED = 264  # two for each processor of a large device
ACROSS_AT_MOST, ACROSS_AT_LEAST = 64, 8  # columns, when a program walks down them


@dataclass(frozen=True)
class Seen:
    """What blocks depend on."""

    draft: Draft
    tiles: Sequence[frozenset[Axis]]
    passes: dict[Axis, int]
    carried: frozenset[Axis]
    crossed: frozenset[Axis]  # along a row whose sum leads to sums across
    width: int  # 2 where values take two registers


def inner_blocks(
    seen: Seen, across: int, shrink: int, resident: int | None = None, whole: frozenset[Axis] = frozenset()
) -> tuple[dict[Axis, int], frozenset[Axis]]:
    """Blocks of the inner axes, and those of them that are too long to be held at once, or asked to be walked.

    Axes that are carried or crossed, or are to be `whole` anyway, are never walked.
    """
    draft = seen.draft
    resident = resident or (RESIDENT_CROSSED if seen.crossed else RESIDENT)
    budget = max(resident // seen.width >> 2 * shrink, 64)
    streamed = max(STREAMED // seen.width >> shrink, 64)
    blocks = {axis: power_of_two(axis.size) for axis in draft.inner}
    looped: set[Axis] = set()

    def walk(axis: Axis, tile: frozenset[Axis]) -> None:
        looped.add(axis)
        others = math.prod(blocks[a] for a in tile if a is not axis)
        blocks[axis] = max(min(blocks[axis], streamed // (others * across)), 1)

    for axis, role in draft.asked.items():
        if role is Role.LOOP:
            walk(axis, _largest([tile for tile in seen.tiles if axis in tile], blocks) or frozenset((axis,)))
            blocks[axis] = max(min(blocks[axis], power_of_two(axis.size) // 2), 1)
    fixed = seen.carried | seen.crossed | whole | {axis for axis, role in draft.asked.items() if role is Role.LANE}
    tiles = [tile for tile in seen.tiles if not tile <= fixed]
    while (largest := _largest(tiles, blocks)) and math.prod(blocks[a] for a in largest) * min(across, 16) > budget:
        candidates = sorted(largest - looped - fixed, key=lambda a: (-seen.passes[a], blocks[a], a.name))
        if not candidates:
            break
        walk(candidates[-1], largest)
    return blocks, frozenset(looped)


def across_of(draft: Draft, fast: Axis) -> int:
    """How many neighbours along the grid a program takes: whole sectors of memory, if there are programs enough."""
    across = min(power_of_two(fast.size), ACROSS_AT_MOST)
    others = math.prod(axis.size for axis in draft.grid if axis is not fast)
    while across > ACROSS_AT_LEAST and others * -(-fast.size // across) < PROGRAMS_WANTED // 2:
        across //= 2
    return across


def _largest(tiles: Sequence[frozenset[Axis]], blocks: dict[Axis, int]) -> frozenset[Axis] | None:
    return max(tiles, key=lambda tile: math.prod(blocks[a] for a in tile), default=None)


def fastest_of(draft: Draft, offsets: Sequence[Index]) -> Axis | None:
    """The axis along which most of the touched elements lie next to each other."""
    votes: dict[Axis, int] = {}
    for index in offsets:
        low, high = index.bounds
        for axis in [*draft.inner, *draft.grid]:
            if index.coefficient(axis) in (1, -1):
                votes[axis] = votes.get(axis, 0) + high - low + 1
    return max(votes, key=lambda axis: votes[axis], default=None)


def grid_blocks(
    draft: Draft,
    blocks: dict[Axis, int],
    fast: Axis | None,
    across: int,
    held: int,
    unrolled: int,
    width: int,
    shrink: int,
) -> None:
    if not draft.inner:
        _pointwise_blocks(draft, blocks, unrolled, width, shrink)
        return
    programs = 1
    for axis in draft.grid:
        blocks[axis] = 1
        programs *= axis.size
    if not draft.grid:
        return
    target = fast if fast in draft.grid else draft.grid[-1]
    assert target is not None
    room = max(2048 // (width * max(unrolled, 1) * held) >> shrink, 1)
    wanted = max(across, 1)
    if target is not fast:
        wanted = max(1, min(room, programs // PROGRAMS_WANTED))
    elif held * across < 1024:
        wanted = max(across, min(room, programs // PROGRAMS_WANTED))
    while wanted > 16 and wanted * held * width > RESIDENT >> shrink:
        wanted //= 2
    wanted = 1 << (wanted.bit_length() - 1)
    blocks[target] = min(wanted, power_of_two(target.size))


def _pointwise_blocks(draft: Draft, blocks: dict[Axis, int], unrolled: int, width: int, shrink: int) -> None:
    if len(draft.grid) > 1:
        for axis in draft.grid:
            blocks[axis] = 1
        for axis in draft.grid[-2:]:
            blocks[axis] = min(power_of_two(axis.size), 32 >> min(shrink, 3))
        return
    for axis in draft.grid:
        most = max(POINTWISE_BLOCK // width // power_of_two(unrolled) >> shrink, 64)
        share = power_of_two(-(-axis.size // PROGRAMS_WANTED))
        blocks[axis] = min(max(share, 128), most, power_of_two(axis.size))
