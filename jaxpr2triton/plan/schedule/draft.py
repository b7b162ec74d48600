"""What there is to schedule: the axes of a region as one kernel has them, before they get blocks.

Axes that nothing tells apart become one; each lands on the grid, among the inner axes, which one program has whole,
among the unrolled ones, or counts the steps of a loop. Names are given here, and wishes about them followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Recurrence
from jaxpr2triton.graph.space import Space
from jaxpr2triton.hardware import LINE, SECTOR
from jaxpr2triton.ir.index import Axis, Index, of_axis, substitute
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.plan.schedule.invariant import split_along
from jaxpr2triton.plan.schedule.merge import Cut, alike, as_one, cuts_of, merged, offsets_of, other_indices
from jaxpr2triton.plan.schedule.products import Contracting, contracting, names_of
from jaxpr2triton.policy import Policy


@dataclass(frozen=True)
class Arrays:
    """The shapes of what a region reads and writes."""

    read: tuple[tuple[int, ...], ...]
    written: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RoleRequest:
    """A role that was asked for, and the axes that it is about, as they are after cutting."""

    name: str
    axes: frozenset[Axis]
    role: Role


@dataclass
class Draft:
    """Axes that have been decided on so far, and what the original ones are in terms of them."""

    cuts: list[Cut]
    policy: Policy
    mapping: dict[Axis, Index] = field(default_factory=dict)
    grid: list[Axis] = field(default_factory=list)
    inner: list[Axis] = field(default_factory=list)
    unrolled: list[Axis] = field(default_factory=list)
    steps: list[Axis] = field(default_factory=list)
    unbounded: set[Axis] = field(default_factory=set)  # those that count the steps of a `while`
    seldom: set[Axis] = field(default_factory=set)  # … that hardly ever has any
    asked: dict[Axis, Role] = field(default_factory=dict)  # inner axes that were asked to be a lane or a loop
    made_of: dict[str, frozenset[Axis]] = field(default_factory=dict)  # by name, after cutting
    known: dict[Axis, frozenset[Axis]] = field(default_factory=dict)
    contracting: Contracting | None = None
    pieces: int = 1  # that a thread has side by side of what reads its neighbours
    shares: bool = False  # whether elements of a thread have values in common that are costly

    def place(self, axes: Sequence[Axis], name: str, kind: list[Axis]) -> Axis:
        while name in self.made_of:
            name += "_"
        whole, mapping = as_one(axes, name)
        self.mapping.update(mapping)
        self.made_of[name] = frozenset(axes)
        kind.append(whole)
        return whole

    def map(self, index: Index) -> Index:
        return substitute(substitute(index, {cut.axis: cut.index for cut in self.cuts}), self.mapping)

    def axes_of(self, axis: Axis) -> frozenset[Axis]:
        """The axes that stand for an original one."""
        if axis not in self.known:
            self.known[axis] = self.map(of_axis(axis)).axes
        return self.known[axis]


def draft_of(
    space: Space,
    arrays: Arrays,
    unrolled_up_to: int,
    policy: Policy,
    wishes: Sequence[RoleRequest] = (),
    pieces: int = 1,
) -> Draft:
    """The axes of a kernel; small ones that do not have to be lanes are unrolled.

    On demand those whose lanes read their neighbours are cut, so that a thread has so many `pieces` side by side.
    """
    axes, repeated = axes_of_space(space), _repeated(space)
    whole = repeated | space.swept_axes
    cuts = cuts_of(space, [axis for axis in axes if axis not in whole], pieces, policy)
    cuts, wishes = _without_cuts(cuts, wishes)
    draft = Draft(cuts, policy, unrolled=[cut.unrolled for cut in cuts], pieces=pieces)
    draft.made_of |= {axis.name: frozenset((axis,)) for axis in draft.unrolled}
    groups = alike(space, axes)
    _place_steps(draft, [group for group in groups if group[0] in space.steps], space)
    grid_axes, inners = _shared_out(draft, [group for group in groups if group[0] not in space.steps], space)
    moved = _moved(grid_axes, wishes)
    elsewhere = frozenset().union(*moved.values())
    grid_axes = [axis for axis in grid_axes if axis not in elsewhere]

    roots = frozenset(space.axes) | {cut.rest for cut in cuts if cut.axis in space.axes}
    held = [group for group in inners if group[0] in roots]
    draft.contracting = _contracts(draft, space, moved, wishes)
    if draft.contracting is not None:
        _place_sides(draft, draft.contracting, grid_axes, space.axes)
    else:
        pointwise = not inners and not moved
        _place_grid(draft, grid_axes, space, arrays, pointwise, "row" if len(held) < 2 else "part")
    for name, group in moved.items():
        draft.place(group, name, draft.inner)

    names = dict(zip(map(tuple, inners), _names_of(inners, held)))
    lanes = (repeated if grid_axes else _lanes_alone(inners, policy)) | _of_one_program(draft)
    _unroll_small(draft, _place_inner(draft, names, lanes, wishes), unrolled_up_to, roots, space)
    _follow(draft, wishes)
    draft.contracting = _knowing_variables(draft)
    return draft


def _knowing_variables(draft: Draft) -> Contracting | None:
    of_axes = [(axis, axis.size) for own in draft.unrolled for axis in draft.made_of[own.name]]
    pieces = [(cut.axis, cut.unrolled.size) for cut in draft.cuts]
    return None if draft.contracting is None else replace(draft.contracting, variables=(*of_axes, *pieces))


def _of_one_program(draft: Draft) -> frozenset[Axis]:
    return draft.contracting.of_one_program if draft.contracting is not None else frozenset()


def _lanes_alone(inners: Sequence[Sequence[Axis]], policy: Policy) -> frozenset[Axis]:
    """What has to be lanes without a grid: the large axes if there are any, or all."""
    large = [group for group in inners if group[0].size >= policy.cuts.small_loop]
    return frozenset().union(*large or inners)


def _place_inner(
    draft: Draft, names: Mapping[tuple[Axis, ...], str], lanes: frozenset[Axis], wishes: Sequence[RoleRequest]
) -> list[tuple[tuple[Axis, ...], Axis]]:
    """Place each group as one axis, under its usual name or that of a wish; those that do not have to be lanes."""
    free = []
    for group, usual in names.items():
        asked = next((wish.name for wish in wishes if not wish.axes.isdisjoint(group)), None)
        axis = draft.place(group, asked or usual, draft.inner)
        if not asked and lanes.isdisjoint(group):
            free.append((group, axis))
    return free


def _names_of(inners: Sequence[list[Axis]], held: Sequence[list[Axis]]) -> list[str]:
    """What inner axes are usually called: those of results as rows and columns, the others as what is summed."""
    of_results = iter(_inner_names(len(held), "row", "col"))
    of_sums = iter(_inner_names(len(inners), "k"))
    return [next(of_results if group in held else of_sums) for group in inners]


def _repeated(space: Space) -> frozenset[Axis]:
    """The steps of loops, and the axes for each index of which a loop runs once."""
    loops = list(space.graph.of_kind(Recurrence))
    carried = frozenset().union(*(leaf.axes for loop in loops for leaf in loop.carried))
    return space.steps.union(*(loop.bound & carried for loop in loops))


def _place_steps(draft: Draft, groups: Sequence[list[Axis]], space: Space) -> None:
    unbounded = {loop.step: loop.seldom for loop in space.graph.of_kind(Recurrence) if loop.conditional}
    for group in groups:
        counted = draft.place(group, f"t{len(draft.steps) or ''}", draft.steps)
        found = [unbounded[axis] for axis in group if axis in unbounded]
        draft.unbounded |= {counted} if found else set()
        draft.seldom |= {counted} if found and all(found) else set()


def _shared_out(draft: Draft, groups: Sequence[list[Axis]], space: Space) -> tuple[list[Axis], list[list[Axis]]]:
    """Axes that programs share out, and groups of those that one program has whole; without those of one element."""
    rest = {cut.axis: cut.rest for cut in draft.cuts}
    grid: list[Axis] = []
    inners: list[list[Axis]] = []
    for group in groups:
        current = [axis for axis in (rest.get(axis, axis) for axis in group) if axis.size > 1]
        if group[0] in space.axes and group[0] not in space.inner:
            grid += current
        elif current:
            inners.append(current)
    return grid, inners


def _unroll_small(
    draft: Draft, placed: Sequence[tuple[Sequence[Axis], Axis]], at_most: int, roots: frozenset[Axis], space: Space
) -> None:
    for members, axis in placed:
        if _may_be_unrolled(draft, members, axis, at_most, roots, space):
            draft.inner.remove(axis)
            draft.unrolled.append(axis)


def _may_be_unrolled(
    draft: Draft, group: Sequence[Axis], axis: Axis, at_most: int, roots: frozenset[Axis], space: Space
) -> bool:
    """Whether there may be a variable for each index: of a small axis of a sum, of pairs, or of what a loop carries."""
    if draft.contracting is not None and draft.contracting.thin.issuperset(group):
        return True
    of_state = any(a in space.held_axes or rest_of(draft.cuts, a) & space.held_axes for a in group)
    variables = unrolled_variables(draft, space, group)
    room = axis.size <= at_most and variables <= numbers.COMMON.one_by_one
    once = space.swept_axes.isdisjoint(group) and _repeated(space).isdisjoint(group)  # a loop runs once for all of them
    return room and once and (group[0] not in roots or of_state)


def axes_of_space(space: Space) -> list[Axis]:
    """All axes of a kernel: those of its results, and those of its reductions and loops."""
    reduction_axes = dict.fromkeys(a for axes in space.chosen.values() for a in axes if a not in space.axes)
    return [*space.axes, *(axis for axis in reduction_axes if axis.size > 1)]


def unrolled_variables(draft: Draft, space: Space, more: Sequence[Axis] = ()) -> int:
    """How many variables there would be at most in place of one value, if these axes were unrolled too."""
    if not space.axes_looked_up.isdisjoint(more):  # each look is a choice between all variables
        return math.prod(axis.size for axis in more) * math.prod(axis.size for axis in draft.unrolled)
    unrolled = {*more, *(a for axis in draft.unrolled for a in draft.made_of[axis.name])}
    whole = {cut.axis: cut.unrolled for cut in draft.cuts}
    sizes = [math.prod(whole.get(a, a).size for a in axes if a in unrolled or a in whole) for axes in space.axes_met]
    return max(sizes, default=1)


def _without_cuts(cuts: list[Cut], wishes: Sequence[RoleRequest]) -> tuple[list[Cut], list[RoleRequest]]:
    """Pieces that are not to be variables are not cut: the wish is then about the axis that would have been."""
    left = list(cuts)
    found = []
    for wish in wishes:
        cut = next((cut for cut in cuts if cut.unrolled in wish.axes), None)
        if cut is None:
            found.append(wish)
        elif not wish.role.is_unrolled:
            left.remove(cut)
            found.append(RoleRequest(wish.name, frozenset((cut.axis,)), wish.role))
    return left, found


def _moved(grid_axes: Sequence[Axis], wishes: Sequence[RoleRequest]) -> dict[str, list[Axis]]:
    """Axes that could be on the grid and are to be elsewhere, by their names."""
    asked = [wish for wish in wishes if not wish.role.is_parallel]
    found = {wish.name: [axis for axis in grid_axes if axis in wish.axes] for wish in asked}
    return {name: axes for name, axes in found.items() if axes}


def _follow(draft: Draft, wishes: Sequence[RoleRequest]) -> None:
    """Note what was asked for inner axes."""
    for wish in wishes:
        names = [name for name, axes in draft.made_of.items() if axes & wish.axes]
        for axis in [axis for axis in draft.inner if axis.name in names]:
            if wish.role.is_unrolled:
                draft.inner.remove(axis)
                draft.unrolled.append(axis)
            else:
                draft.asked[axis] = wish.role


def rest_of(cuts: Sequence[Cut], axis: Axis) -> frozenset[Axis]:
    """The axis that was cut into pieces of which this one runs within each."""
    return frozenset(cut.axis for cut in cuts if cut.rest is axis)


def _inner_names(count: int, *usual: str) -> list[str]:
    """`col`; `row`, `col`; `row0`, `row1`, `row2`."""
    if count <= len(usual):
        return list(usual[len(usual) - count :])
    return [usual[0] + (str(n) if n else "") for n in range(count)]


def _place_grid(draft: Draft, axes: list[Axis], space: Space, arrays: Arrays, pointwise: bool, name: str) -> None:
    if not axes:
        return
    cut_at: Mapping[Axis, Index] = {cut.axis: cut.index for cut in draft.cuts}
    known = dict.fromkeys(offsets_of(space.graph, arrays.read, arrays.written)), dict.fromkeys(other_indices(space))
    offsets, others = ([substitute(each, cut_at) for each in of] for of in known)
    if pointwise:
        turned = _turned_axis(axes, offsets, SECTOR)
        if turned is not None:
            sides: list[Sequence[Axis]] = [[axis for axis in axes[:-1] if axis is not turned], [turned], axes[-1:]]
        else:
            whole = {cut.rest: cut.axis for cut in draft.cuts}
            sides = split_along(space, axes, whole, arrays.read, arrays.written, draft.policy)
            draft.shares, sides = bool(sides), sides or [[], axes, []]
        for side, usual in zip(sides, "nij"):
            if side:
                draft.place(side, usual, draft.grid)
        return
    runs = merged(axes, offsets, others)
    if len(runs) > 1 and math.prod(a.size for a in runs[-1]) < LINE:
        runs = [axes]
    names = [name] if len(runs) == 1 else [f"i{n}" for n in range(len(runs))]
    for run, chosen in zip(runs, names):
        draft.place(run, chosen, draft.grid)


def _contracts(
    draft: Draft, space: Space, moved: Mapping[str, Sequence[Axis]], wishes: Sequence[RoleRequest]
) -> Contracting | None:
    """How the kernel contracts two sides, unless it is asked for other axes; a result for each piece of an axis."""
    found = None if moved else contracting(space, draft.policy)
    if found is None or any(not wish.role.is_unrolled and wish.axes & found.thin for wish in wishes):
        return None
    if any(cut.axis in found.of_one_program | found.thin for cut in draft.cuts):
        return None
    return replace(found, sums=found.sums * math.prod(cut.unrolled.size for cut in draft.cuts))


def _place_sides(draft: Draft, how: Contracting, axes: Sequence[Axis], roots: Sequence[Axis]) -> None:
    """Rows and columns, each as one axis; the rows are the side that the results begin with.

    Of a side that is held in part, programs have the rest one by one.
    """
    whole = {cut.rest: cut.axis for cut in draft.cuts}

    def last(side: frozenset[Axis]) -> int:
        return max((roots.index(axis) for axis in side if axis in roots), default=len(roots))

    sides = sorted((how.sides.rows, how.sides.columns), key=last)
    rows, columns = (
        [axis for axis in axes if whole.get(axis, axis) in side and how.held.isdisjoint(side)] for side in sides
    )
    batch = [axis for axis in axes if axis not in (*rows, *columns)]
    for name, group in names_of(batch, rows, columns).items():
        draft.place(group, name, draft.grid)


def _turned_axis(axes: Sequence[Axis], offsets: Sequence[Index], least: int) -> Axis | None:
    """An axis along which some operand is contiguous while the result is not: a transpose."""
    last = axes[-1]
    for index in offsets:
        if abs(index.coefficient(last) or 0) <= 1:
            continue
        for axis in axes[:-1]:
            if abs(index.coefficient(axis) or 0) == 1 and min(axis.size, last.size) >= least:
                return axis
    return None
