"""How many elements along each axis a program holds at once, where no loop carries anything from step to step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxpr2triton.graph.nodes import Graph
from jaxpr2triton.graph.planned import Lowering
from jaxpr2triton.hardware import LINE, SECTOR
from jaxpr2triton.ir.index import Axis, Index, Remainder
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.plan.schedule.draft import Draft


@dataclass(frozen=True)
class Seen:
    """What blocks depend on."""

    draft: Draft
    lowering: Lowering
    graph: Graph  # with no inner axis as lanes yet
    tiles: Sequence[frozenset[Axis]]
    passes: dict[Axis, int]
    carried: frozenset[Axis]  # or swept
    crossed: frozenset[Axis]  # along a row whose sum leads to sums across
    width: int  # 2 where values take two registers
    may_walk: Callable[[frozenset[Axis]], bool]  # whether loops along all of these fit within each other


def inner_blocks(
    seen: Seen,
    across: int,
    shrink: int,
    resident: int | None = None,
    whole: frozenset[Axis] = frozenset(),
    piece: int | None = None,
    first: frozenset[Axis] = frozenset(),
) -> tuple[dict[Axis, int], frozenset[Axis]]:
    """Blocks of the inner axes, and those of them that are too long to be held at once, or asked to be walked.

    Axes that are carried, swept or crossed, or are to be `whole` anyway, are never walked; others are walked `first`.
    No loop is within another one along the same axis.
    """
    draft, policy = seen.draft, seen.draft.policy.blocks
    resident = resident or (policy.room if seen.crossed else policy.resident)
    budget = max(resident // seen.width >> 2 * shrink, 1)
    streamed = max((piece or policy.piece) // seen.width >> shrink, 1)
    blocks = {axis: power_of_two(axis.size) for axis in draft.inner}
    looped: set[Axis] = set()

    def walk(axis: Axis, tile: frozenset[Axis]) -> None:
        looped.add(axis)
        others = math.prod(blocks[a] for a in tile if a is not axis)
        blocks[axis] = max(min(blocks[axis], streamed // (others * across)), 1)

    for axis, role in draft.asked.items():
        if role.is_sequential:
            walk(axis, _largest([tile for tile in seen.tiles if axis in tile], blocks) or frozenset((axis,)))
            blocks[axis] = max(min(blocks[axis], power_of_two(axis.size) // 2), 1)
    fixed = seen.carried | seen.crossed | whole | {axis for axis, role in draft.asked.items() if role.is_vectorized}
    tiles = [tile for tile in seen.tiles if not tile <= fixed]
    beside = min(across, 2 * SECTOR)
    while (largest := _largest(tiles, blocks)) and math.prod(blocks[a] for a in largest) * beside > budget:
        candidates = _walkable(largest - looped - fixed, seen, shrink * len(looped) > 0)
        candidates.sort(key=lambda a: (a in first, -seen.passes[a], blocks[a], a.name))
        if (best := _last_that_fits(candidates, looped, seen)) is None:
            break
        walk(best, largest)
    return blocks, frozenset(looped)


def _walkable(axes: frozenset[Axis], seen: Seen, within: bool) -> list[Axis]:
    """Not twice, where that would be within another loop."""
    return [axis for axis in axes if not (within and seen.passes[axis] > 1)]


def _last_that_fits(candidates: Sequence[Axis], looped: set[Axis], seen: Seen) -> Axis | None:
    """The best axis along which a loop has a place beside the others; they are asked for one by one."""
    fitting = (axis for axis in reversed(candidates) if not looped or seen.may_walk(frozenset((*looped, axis))))
    return next(fitting, None)


def across_of(draft: Draft, fast: Axis) -> int:
    """How many neighbours along the grid a program takes: whole sectors of memory, if there are programs enough."""
    across = min(power_of_two(fast.size), draft.policy.blocks.across)
    others = math.prod(axis.size for axis in draft.grid if axis is not fast)
    while across > SECTOR and others * -(-fast.size // across) < draft.policy.target.processors:
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
            if _advances_by_one(index, axis, LINE):
                votes[axis] = votes.get(axis, 0) + high - low + 1
    return max(votes, key=lambda axis: votes[axis], default=None)


def _advances_by_one(index: Index, axis: Axis, run: int) -> bool:
    """Whether the next element lies next to the present one, mostly: runs are as long as that at least."""
    if (step := index.coefficient(axis)) is not None:
        return abs(step) == 1
    runs = [atom for atom, coef in index.terms if isinstance(atom, Remainder) and abs(coef) == 1 and atom.by >= run]
    return any(atom.of.coefficient(axis) in (1, -1) for atom in runs)


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
    policy, wide = draft.policy.blocks, 2 * draft.policy.target.processors
    programs = 1
    for axis in draft.grid:
        blocks[axis] = 1
        programs *= axis.size
    if not draft.grid:
        return
    target = fast if fast in draft.grid else draft.grid[-1]
    assert target is not None
    room = max(2 * draft.policy.block // (width * max(unrolled, 1) * held) >> shrink, 1)
    wanted = max(across, 1)
    if target is not fast:
        wanted = max(1, min(room, programs // wide))
    elif held * across < draft.policy.block:
        wanted = max(across, min(room, programs // wide))
    while wanted > 2 * SECTOR and wanted * held * width > policy.resident >> shrink:
        wanted //= 2
    wanted = 1 << (wanted.bit_length() - 1)
    blocks[target] = min(wanted, power_of_two(target.size))


def _pointwise_blocks(draft: Draft, blocks: dict[Axis, int], unrolled: int, width: int, shrink: int) -> None:
    target = draft.policy.target
    if len(draft.grid) > 1:
        for axis in draft.grid:
            blocks[axis] = 1
        side = LINE >> min(shrink, 3)
        for axis in draft.grid[-2:]:
            blocks[axis] = min(power_of_two(axis.size), side)
        if draft.shares:  # a short side of a few rows leaves room for more of each
            rows, columns = draft.grid[-2:]
            blocks[columns] = min(power_of_two(columns.size), side * side // blocks[rows])
        return
    for axis in draft.grid:
        most = max(draft.policy.block // width // power_of_two(unrolled) >> shrink, target.warp_size)
        share = power_of_two(-(-axis.size // (2 * target.processors)))
        blocks[axis] = min(max(share, target.lanes), most, power_of_two(axis.size))
