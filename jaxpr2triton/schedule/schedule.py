"""Stage: a region → a role and a block for each of its axes.

    region softmax: f32[4096,1000] → f32[4096,1000]
        →
    kernel softmax   row: grid 4096 by 1 | col: lane 1000 of 1024   warps 4

`shrink` asks for a smaller schedule of the same region, for when Triton or the device refuses the first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxpr2triton.ir.index import Axis, Index, of_axis, substitute
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan, PlannedAxis
from jaxpr2triton.rules.classes import Classes
from jaxpr2triton.rules.nodes import Collected, Load, Node, Recurrence, operands_of
from jaxpr2triton.rules.space import Space, space_of
from jaxpr2triton.schedule.merge import Cut, alike, as_one, find_cuts, merged, offsets_of, other_indices

RESIDENT = 16384  # 4-byte elements of one tile that may stay in registers
STREAMED = 4096  # elements of a tile in a loop
POINTWISE_BLOCK = 1024
PROGRAMS_WANTED = 264  # two for each processor of a large device
ACROSS_AT_MOST, ACROSS_AT_LEAST = 64, 8  # columns, when a program walks down them
UNROLLED_REDUCTION = 4
UNROLLED_STATE = 16  # of what a loop carries: one variable for each
UNROLLED_AT_MOST = 64  # variables in place of one
LOOP_LANES = 128
KEPT_PER_THREAD = 160  # elements that a thread keeps through a loop, of its 255 registers
COPIES_OF_STATE = 8  # values as large as a carried tile that a step needs at once
LANES_TO_FILL = 256  # independent loops, so that each may be one lane
WARPS_AT_MOST = 16
KEPT_AT_MOST = 40_000  # 4-byte elements that all threads of a program can keep


def power_of_two(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(size - 1, 0).bit_length()


@dataclass
class _Draft:
    """Axes that have been decided on so far, and what the original ones are in terms of them."""

    mapping: dict[Axis, Index] = field(default_factory=dict)
    grid: list[Axis] = field(default_factory=list)
    inner: list[Axis] = field(default_factory=list)
    unrolled: list[Axis] = field(default_factory=list)
    steps: list[Axis] = field(default_factory=list)

    def place(self, axes: Sequence[Axis], name: str, kind: list[Axis]) -> Axis:
        whole, mapping = as_one(axes, name)
        self.mapping.update(mapping)
        kind.append(whole)
        return whole


def schedule(region: Any, name: str, shrink: int = 0) -> Plan:
    """The plan of one region."""
    jaxpr = region.jaxpr
    space = space_of(jaxpr, jaxpr.outvars, Classes(jaxpr), union=True)
    assert space is not None  # partition groups only outputs that fit
    shapes = [var.aval.shape for var in jaxpr.invars]
    stored = [var.aval.shape for var in jaxpr.outvars]
    draft, cuts = _draft(space, shapes, stored)
    places = tuple(tuple(_map(i, cuts, draft) for i in place) for place in space.places)
    reduced = {n: tuple(_map(of_axis(a), cuts, draft) for a in axes) for n, axes in space.chosen.items()}
    offsets = [_map(i, cuts, draft) for i in offsets_of(space, shapes, stored)]
    tiles = _tiles(space, cuts, draft)
    widest = max((v.aval.dtype.itemsize for v in [*jaxpr.invars, *jaxpr.outvars]), default=4)
    passes = {axis: _passes(space, cuts, draft, axis) for axis in draft.inner}
    leaves = {axis for loop in space.graph.of_kind(Recurrence) for leaf in loop.carried for axis in leaf.axes}
    carried = frozenset(a for axis in leaves for a in _map(of_axis(axis), cuts, draft).axes)
    resident = [*_resident(space, shapes, cuts, draft), *_state(space, cuts, draft)]
    width = 2 if widest == 8 else 1
    planned, warps, reload = _blocks(draft, offsets, tiles, passes, carried, resident, width, shrink)
    return Plan(name, region, planned, places, reduced, warps, 2, reload)


def _map(index: Index, cuts: Sequence[Cut], draft: _Draft) -> Index:
    return substitute(substitute(index, {cut.axis: cut.index for cut in cuts}), draft.mapping)


def _draft(
    space: Space, shapes: Sequence[tuple[int, ...]], stored: Sequence[tuple[int, ...]]
) -> tuple[_Draft, list[Cut]]:
    reduction_axes = dict.fromkeys(a for axes in space.chosen.values() for a in axes if a not in space.axes)
    axes = [*space.axes, *(axis for axis in reduction_axes if axis.size > 1)]
    loops = list(space.graph.of_kind(Recurrence))
    carried = frozenset().union(*(leaf.axes for loop in loops for leaf in loop.carried))
    whole = space.steps | frozenset(axis for loop in loops for axis in loop.bound & carried)
    cuts = find_cuts(space, [axis for axis in axes if axis not in whole])
    rest = {cut.axis: cut.rest for cut in cuts}
    offsets = [substitute(i, {c.axis: c.index for c in cuts}) for i in offsets_of(space, shapes, stored)]
    others = [substitute(i, {c.axis: c.index for c in cuts}) for i in other_indices(space)]
    draft = _Draft()
    for cut in cuts:
        draft.unrolled.append(cut.unrolled)
    grids: list[list[Axis]] = []
    inners: list[list[Axis]] = []
    for group in alike(space, axes):
        if group[0] in space.steps:
            draft.place(group, f"t{len(draft.steps) or ''}", draft.steps)
            continue
        on_grid = group[0] in space.axes and group[0] not in space.inner
        current = [rest.get(axis, axis) for axis in group]
        (grids if on_grid else inners).append([axis for axis in current if axis.size > 1])
    grid_axes = [axis for group in grids for axis in group]
    pointwise = not any(inners)
    inners = [group for group in inners if group]
    roots = set(space.axes) | {cut.rest for cut in cuts if cut.axis in space.axes}
    held = [group for group in inners if group[0] in roots]
    _place_grid(draft, grid_axes, offsets, others, pointwise, "row" if len(held) < 2 else "part")
    spread = math.prod(axis.size for axis in grid_axes) >= LANES_TO_FILL
    few = UNROLLED_STATE if space.steps and spread else UNROLLED_REDUCTION
    names = dict(zip(map(id, held), _inner_names(len(held), "row", "col")))
    names |= dict(zip((id(g) for g in inners if id(g) not in names), _inner_names(len(inners), "k")))
    for group in inners:
        root = group[0] in roots
        axis = draft.place(group, names[id(group)], draft.inner)
        of_state = any(a in space.held_axes or rest_of(cuts, a) & space.held_axes for a in group)
        apart = not whole.isdisjoint(group)  # a loop runs once for each index of it
        variables = axis.size * math.prod(other.size for other in draft.unrolled)
        room = axis.size <= few and variables <= UNROLLED_AT_MOST
        if room and grid_axes and not apart and (not root or (of_state and spread)):
            draft.inner.remove(axis)
            draft.unrolled.append(axis)
    return draft, cuts


def rest_of(cuts: Sequence[Cut], axis: Axis) -> frozenset[Axis]:
    """The axis that was cut into pieces of which this one runs within each."""
    return frozenset(cut.axis for cut in cuts if cut.rest is axis)


def _inner_names(count: int, *usual: str) -> list[str]:
    """`col`; `row`, `col`; `row0`, `row1`, `row2`."""
    if count <= len(usual):
        return list(usual[len(usual) - count :])
    return [usual[0] + (str(n) if n else "") for n in range(count)]


def _place_grid(
    draft: _Draft, axes: list[Axis], offsets: Sequence[Index], others: Sequence[Index], pointwise: bool, name: str
) -> None:
    if not axes:
        return
    if pointwise:
        turned = _turned_axis(axes, offsets)
        if turned is None:
            draft.place(axes, "i", draft.grid)
            return
        batch = [axis for axis in axes[:-1] if axis is not turned]
        if batch:
            draft.place(batch, "n", draft.grid)
        draft.place([turned], "i", draft.grid)
        draft.place(axes[-1:], "j", draft.grid)
        return
    runs = merged(axes, offsets, others)
    if len(runs) > 1 and math.prod(a.size for a in runs[-1]) < 32:
        runs = [axes]
    names = [name] if len(runs) == 1 else [f"i{n}" for n in range(len(runs))]
    for run, chosen in zip(runs, names):
        draft.place(run, chosen, draft.grid)


def _turned_axis(axes: Sequence[Axis], offsets: Sequence[Index]) -> Axis | None:
    """An axis along which some operand is contiguous while the result is not: a transpose."""
    last = axes[-1]
    for index in offsets:
        if abs(index.coefficient(last) or 0) <= 1:
            continue
        for axis in axes[:-1]:
            if abs(index.coefficient(axis) or 0) == 1 and axis.size >= 8 and last.size >= 8:
                return axis
    return None


def _tiles(space: Space, cuts: Sequence[Cut], draft: _Draft) -> list[frozenset[Axis]]:
    """The sets of inner axes that some value has all at once."""
    tiles = set()
    for node in space.graph.nodes:
        axes = node.axes | frozenset(node.over if isinstance(node, Collected) else ())
        mapped = frozenset(a for axis in axes for a in _map(of_axis(axis), cuts, draft).axes)
        tiles.add(mapped & frozenset(draft.inner))
    return sorted(tiles, key=lambda tile: sorted(axis.name for axis in tile))


def _passes(space: Space, cuts: Sequence[Cut], draft: _Draft, axis: Axis) -> int:
    """How often a loop over the axis would run: once more for each reduction along it that is wanted along it again."""
    depth: dict[Node, int] = {}
    most = 1
    for node in space.graph.nodes:
        before = max((depth[o] for o in operands_of(node)), default=0)
        along = {a for root in node.axes for a in _map(of_axis(root), cuts, draft).axes}
        over = {a for r in getattr(node, "over", ()) for a in _map(of_axis(r), cuts, draft).axes}
        if axis in along or axis in over:
            most = max(most, before + 1)
        depth[node] = before + (axis in over)
    return most


def _blocks(
    draft: _Draft,
    offsets: Sequence[Index],
    tiles: Sequence[frozenset[Axis]],
    passes: dict[Axis, int],
    carried: frozenset[Axis],
    resident: Sequence[_Resident],
    width: int,
    shrink: int,
) -> tuple[tuple[PlannedAxis, ...], int, bool]:
    """Block sizes, warps, and whether what stays resident is too much. `width` is 2 where values take two registers."""
    budget = max(RESIDENT // width >> 2 * shrink, 64)
    streamed = max(STREAMED // width >> shrink, 64)
    fast = _fastest(draft, offsets)
    across = _across(draft, fast) if fast in draft.grid and draft.inner and not draft.steps else 1
    blocks = {axis: power_of_two(axis.size) for axis in draft.inner}
    looped: set[Axis] = set()
    while (largest := _largest(tiles, blocks)) and math.prod(blocks[a] for a in largest) * min(across, 16) > budget:
        candidates = sorted(largest - looped - carried, key=lambda a: (-passes[a], blocks[a], a.name))
        if not candidates:
            break
        axis = candidates[-1]
        looped.add(axis)
        others = math.prod(blocks[a] for a in largest if a is not axis)
        blocks[axis] = max(min(blocks[axis], streamed // (others * across)), 1)
    whole = max((math.prod(blocks[a] for a in tile) for tile in tiles), default=1)
    unrolled = math.prod(axis.size for axis in draft.unrolled)
    if draft.steps:
        _lane_blocks(draft, blocks, whole)
    else:
        _grid_blocks(draft, blocks, fast, across, whole, unrolled, width, shrink)
    tile = whole * math.prod(blocks[axis] for axis in draft.grid)
    planned = [PlannedAxis(axis, Role.GRID, blocks[axis]) for axis in draft.grid]
    planned += [PlannedAxis(axis, Role.LOOP, 1) for axis in draft.steps]
    for axis in draft.inner:
        planned.append(PlannedAxis(axis, Role.LOOP if axis in looped else Role.LANE, blocks[axis]))
    planned += [PlannedAxis(axis, Role.UNROLL, 1) for axis in draft.unrolled]
    per_thread = (8 if not draft.inner else 16) if not draft.steps else (1 if not draft.inner else KEPT_PER_THREAD)
    kept = sum(min(sum(math.prod(blocks[a] for a in t) for t in one.tiles), one.most) for one in resident)
    reload = kept * width > KEPT_AT_MOST
    through = WARPS_AT_MOST if reload else -(-kept * width // (32 * KEPT_PER_THREAD))
    wide = 1 if draft.steps and not draft.inner else width  # a lane for each loop, however wide its numbers
    warps = max(tile * wide // (32 * per_thread), through)
    return tuple(planned), max(1, min(WARPS_AT_MOST, power_of_two(warps))), reload


@dataclass(frozen=True)
class _Resident:
    """What of one operand is loaded before a loop and stays in registers through it."""

    tiles: tuple[frozenset[Axis], ...]  # inner axes of each load, once for each variable it becomes
    most: int  # elements of the operand, with room for lanes outside of it


def _resident(space: Space, shapes: Sequence[tuple[int, ...]], cuts: Sequence[Cut], draft: _Draft) -> list[_Resident]:
    if not space.steps:
        return []
    tiles: dict[int, list[frozenset[Axis]]] = {}
    for node in space.graph.of_kind(Load):
        axes = frozenset(a for axis in node.axes for a in _map(of_axis(axis), cuts, draft).axes)
        tile = axes & frozenset(draft.inner)
        if tile and not node.axes & space.steps:
            copies = math.prod(axis.size for axis in draft.unrolled if axis in axes)
            tiles.setdefault(node.buffer, []).extend([tile] * copies)
    most = {buffer: math.prod(map(power_of_two, shapes[buffer])) for buffer in tiles}
    return [_Resident(tuple(found), most[buffer]) for buffer, found in tiles.items()]


def _state(space: Space, cuts: Sequence[Cut], draft: _Draft) -> list[_Resident]:
    """What is carried in tiles, and what a step makes of it."""
    found = []
    for loop in space.graph.of_kind(Recurrence):
        for leaf in loop.carried:
            axes = frozenset(a for axis in leaf.axes for a in _map(of_axis(axis), cuts, draft).axes)
            tile = axes & frozenset(draft.inner)
            if tile:
                room = COPIES_OF_STATE * math.prod(power_of_two(axis.size) for axis in tile)
                found.append(_Resident((tile,) * COPIES_OF_STATE, room))
    return found


def _across(draft: _Draft, fast: Axis) -> int:
    """How many neighbours along the grid a program takes: whole sectors of memory, if there are programs enough."""
    across = min(power_of_two(fast.size), ACROSS_AT_MOST)
    others = math.prod(axis.size for axis in draft.grid if axis is not fast)
    while across > ACROSS_AT_LEAST and others * -(-fast.size // across) < PROGRAMS_WANTED // 2:
        across //= 2
    return across


def _lane_blocks(draft: _Draft, blocks: dict[Axis, int], whole: int) -> None:
    """Loops are chains: as many programs as there can be, each with a warp's worth of lanes or more."""
    for axis in draft.grid:
        blocks[axis] = 1
    if draft.grid:
        last = draft.grid[-1]
        blocks[last] = min(max(LOOP_LANES // whole, 1), power_of_two(last.size))


def _largest(tiles: Sequence[frozenset[Axis]], blocks: dict[Axis, int]) -> frozenset[Axis] | None:
    return max(tiles, key=lambda tile: math.prod(blocks[a] for a in tile), default=None)


def _fastest(draft: _Draft, offsets: Sequence[Index]) -> Axis | None:
    """The axis along which most of the touched elements lie next to each other."""
    votes: dict[Axis, int] = {}
    for index in offsets:
        low, high = index.bounds
        for axis in [*draft.inner, *draft.grid]:
            if index.coefficient(axis) in (1, -1):
                votes[axis] = votes.get(axis, 0) + high - low + 1
    return max(votes, key=lambda axis: votes[axis], default=None)


def _grid_blocks(
    draft: _Draft,
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


def _pointwise_blocks(draft: _Draft, blocks: dict[Axis, int], unrolled: int, width: int, shrink: int) -> None:
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
