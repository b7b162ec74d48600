"""Stage: a region → a role and a block for each of its axes.

    region softmax: f32[4096,1000] → f32[4096,1000]
        →
    kernel softmax   row: grid 4096 by 2 | col: lane 1000 of 1024   warps 4

`shrink` asks for a smaller schedule of the same region, for when Triton or the device refuses the first one. Kernels
with loops have several schedules to choose from; the cheapest by `cost.py` is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.classes import classes_of
from jaxpr2triton.graph.nested import fit_within_each_other
from jaxpr2triton.graph.nodes import Graph, Keep, Place, Recurrence, Swept, axes_of
from jaxpr2triton.graph.planned import Lowering
from jaxpr2triton.graph.space import Space, crossings, multiplied_in, space_of
from jaxpr2triton.graph.variables import as_variables
from jaxpr2triton.hardware import SECTOR
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index, of_axis
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.kernel import Choice, Estimate, Role, Steps
from jaxpr2triton.ir.plan import Form, Plan, PlannedAxis, power_of_two
from jaxpr2triton.ir.region import stored_by
from jaxpr2triton.plan.schedule.blocks import Seen, across_of, fastest_of, grid_blocks, inner_blocks
from jaxpr2triton.plan.schedule.cost import Work, estimate, multiplied, work_of
from jaxpr2triton.plan.schedule.dots_in_loops import InSteps, in_steps
from jaxpr2triton.plan.schedule.draft import Arrays, Draft, RoleRequest, draft_of
from jaxpr2triton.plan.schedule.merge import offsets_of
from jaxpr2triton.plan.schedule.products import (
    LANES,
    Change,
    Contracting,
    block_of,
    walked_block,
    with_whole,
    with_whole_rows,
)
from jaxpr2triton.plan.schedule.registers import read_at_once, read_for_factors
from jaxpr2triton.plan.schedule.role_requests import wishes_of
from jaxpr2triton.plan.schedule.steps import steps_of, waves_of
from jaxpr2triton.plan.schedule.tiled_products import summed_by_threads
from jaxpr2triton.plan.schedule.tiles import passes_of, resident_state, residents, tiles_of
from jaxpr2triton.plan.schedule.walked import Shape, spent_on
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from jaxpr2triton.policy.machines import Block
from jaxpr2triton.rules.products import LEAST

SMALLER = 4  # schedules of one region that are looked at
CHANGES = (Change(), Change(rows=2), Change(columns=2))  # … and of one contraction


@dataclass(frozen=True)
class Candidate:
    """One way to schedule a region."""

    draft: Draft
    axes: tuple[PlannedAxis, ...]
    num_warps: int
    lowering: Lowering
    reload: bool = False
    estimate: Estimate | None = None
    num_stages: int = 2
    form: Form | None = None
    code: int = 0  # instructions of a thread that are written for the steps of loops

    @property
    def graph(self) -> Graph:
        """As it is emitted, but for the layout of its buffers."""
        return self.lowering.along(self.axes)

    @property
    def rank(self) -> tuple[int, ...]:
        """Code that compilers come to an end with, the least cycles; among equals few spills, many
        processors, few turns of programs, few warps and instructions of each.

        A program of one warp has twice the registers that it would have as one of two, and so loads further ahead.
        """
        assert self.estimate is not None
        each = self.estimate
        beyond = max(self.code - self.draft.policy.cuts.instructions, 0)
        at_once = each.processors * self.draft.policy.cost.programs_at_once
        busy, turns = min(each.programs, each.processors), -(-each.programs // at_once)
        spilled = max(each.kept - self.draft.policy.cost.room_of_a_thread, 0)
        return beyond, each.cycles, spilled, -busy, turns, self.num_warps, each.instructions, each.programs


def schedule(
    region: Closed,
    name: str,
    shrink: int = 0,
    roles: Mapping[str, Role] | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Plan:
    """The plan of one region; `roles` are those asked for, by the names of axes in the plan without them."""
    return schedules(region, name, shrink, roles, policy, 1)[0]


def schedules(
    region: Closed,
    name: str,
    shrink: int = 0,
    roles: Mapping[str, Role] | None = None,
    policy: Policy = DEFAULT_POLICY,
    most: int | None = None,
) -> list[Plan]:
    """The plans that there are to choose from, or so many of them: the one that is chosen, and then the next best."""
    scheduled = scheduled_of(region, name, shrink, policy)
    ranked = all_ranked(scheduled, roles or {})
    return [plan_of(scheduled, each, ranked, roles or {}) for each in ranked[:most]]


def scheduled_of(region: Closed, name: str, shrink: int, policy: Policy) -> Scheduled:
    jaxpr = region.jaxpr
    stored = variables(stored_by(jaxpr))
    space = space_of(jaxpr, stored, classes_of(jaxpr), union=True)
    assert space is not None  # partition groups only outputs that fit
    arrays = Arrays(tuple(var.aval.shape for var in jaxpr.invars), tuple(var.aval.shape for var in stored))
    widest = max((v.aval.dtype.itemsize for v in [*jaxpr.invars, *stored]), default=4)
    return Scheduled(name, region, space, arrays, 2 if widest == 8 else 1, shrink, policy)


def all_ranked(scheduled: Scheduled, roles: Mapping[str, Role]) -> list[Candidate]:
    ranked = _ranked(_candidates(scheduled, ()))
    if not roles:
        return ranked
    wishes = wishes_of(roles, ranked[0].draft, scheduled.space, scheduled.name)
    return _ranked(_candidates(scheduled, wishes, ranked[0].draft.pieces))


@dataclass(frozen=True)
class Scheduled:
    """What schedules are looked for."""

    name: str
    region: Closed
    space: Space
    arrays: Arrays
    width: int  # 2 where values take two registers
    shrink: int
    policy: Policy

    def draft(self, unrolled_up_to: int, wishes: Sequence[RoleRequest] = (), pieces: int = 1) -> Draft:
        return draft_of(self.space, self.arrays, unrolled_up_to, self.policy, wishes, pieces)


def plan_of(scheduled: Scheduled, each: Candidate, ranked: Sequence[Candidate], asked: Mapping[str, Role]) -> Plan:
    return Plan(
        scheduled.name,
        scheduled.region,
        each.axes,
        tuple(each.lowering.places),
        each.num_warps,
        each.num_stages,
        each.reload,
        _choice(each, ranked),
        asked,
        scheduled.policy,
        each.form,
        _steps(each, scheduled),
        each.code,
        each.graph,
    )


def _in_terms_of(draft: Draft, space: Space) -> tuple[tuple[Place, ...], dict[Number, tuple[Index, ...]]]:
    """Where outputs are stored and what is reduced along, by the axes of a draft."""
    places = tuple(tuple(map(draft.map, place)) for place in space.places)
    return places, {n: tuple(draft.map(of_axis(a)) for a in axes) for n, axes in space.chosen.items()}


def _steps(best: Candidate, scheduled: Scheduled) -> Steps | None:
    """What the steps of a kernel take, with and without what they multiply."""
    draft, policy, whole = best.draft, scheduled.policy, best.estimate
    if whole is None:
        return None
    shapes, width, beside = scheduled.arrays.read, scheduled.width, whole
    itemsizes = [var.aval.dtype.itemsize for var in scheduled.region.jaxpr.invars]
    state = resident_state(best.graph, draft)
    if sums := multiplied_in(best.graph, draft.steps):
        beside = estimate_of(work_of(best.graph, draft, state, shapes, sums), best.axes, best.num_warps, width, policy)
    if best.form is None and (waves := waves_of(whole, best.num_warps, policy)) > 1:
        work = work_of(best.graph, draft, state, shapes)
        alone = estimate_of(work, best.axes, best.num_warps, width, policy, 1).cycles * waves
        whole = replace(whole, cycles=max(whole.cycles, alone))
    return steps_of(best.graph, draft, best.axes, best.reload, itemsizes, whole, beside)


def _candidates(scheduled: Scheduled, wishes: Sequence[RoleRequest], pieces: int = 1) -> Iterator[Candidate]:
    space, policy = scheduled.space, scheduled.policy
    if not space.steps:
        yield _without_loops(_seen(scheduled, scheduled.draft(policy.axes.unrolled_sum, wishes)), scheduled)
        return
    if not wishes and (axes := as_variables(space, policy)):
        every = _unrolled_along(axes, scheduled.draft(0))
        yield from _with_loops(_seen(scheduled, scheduled.draft(0, every)), scheduled)
        return
    held = max((axis.size for axis in space.held_axes), default=1)  # lanes too, if there are so many
    limits = (numbers.COMMON.small_state,) if max(space.parallel, held) >= policy.cuts.small_loop else ()
    drafts: dict[frozenset[Axis], Draft] = {}
    for limit in (*limits, policy.axes.unrolled_sum, 0):
        draft = scheduled.draft(limit, wishes, pieces)
        drafts.setdefault(frozenset(draft.unrolled), draft)
    for several in (2, policy.axes.unrolled_sum) if not wishes else ():
        draft = scheduled.draft(policy.axes.unrolled_sum, (), several)
        if math.prod(cut.unrolled.size for cut in draft.cuts) <= numbers.COMMON.small_state:
            drafts.setdefault(frozenset(draft.unrolled), draft)
    for draft in drafts.values():
        yield from _with_loops(_seen(scheduled, draft), scheduled)


def _unrolled_along(axes: frozenset[Axis], draft: Draft) -> list[RoleRequest]:
    """That all axes are unrolled that a draft has in the place of these."""
    own = axes | {cut.rest for cut in draft.cuts if cut.axis in axes}
    made = [(axis.name, draft.made_of[axis.name]) for axis in draft.inner]
    return [RoleRequest(name, group, Role.UNROLL) for name, group in made if group <= own]


def _ranked(candidates: Iterator[Candidate]) -> list[Candidate]:
    """The cheapest candidate first; those without an estimate have no others beside them."""
    found = list(candidates)
    return found if found[0].estimate is None else sorted(found, key=lambda each: each.rank)


def _choice(chosen: Candidate, ranked: Sequence[Candidate]) -> Choice | None:
    """How a candidate compares with the best of the others: one of other roles, if there is one."""
    if chosen.estimate is None:
        return None
    others = [each for each in ranked if each is not chosen]
    other = next((each for each in others if _roles(each) != _roles(chosen)), next(iter(others), None))
    if other is None:
        return Choice(chosen.estimate)
    return Choice(chosen.estimate, _difference(other, chosen), other.estimate)


def _roles(candidate: Candidate) -> dict[str, Role]:
    return {planned.axis.name: planned.role for planned in candidate.axes}


def _difference(other: Candidate, best: Candidate) -> str:
    """`k: lane 16 of 16, 4 warps`: what is different about a candidate."""
    same = {str(planned.shown) for planned in best.axes}
    words = [str(planned.shown) for planned in other.axes if str(planned.shown) not in same]
    if other.num_warps != best.num_warps:
        words.append("1 warp" if other.num_warps == 1 else f"{other.num_warps} warps")
    return ", ".join(words)


def _seen(scheduled: Scheduled, draft: Draft) -> Seen:
    places, reduced = _in_terms_of(draft, scheduled.space)
    lowering = Lowering(scheduled.name, scheduled.region.jaxpr, places, reduced, frozenset(draft.unrolled))
    # any inner axis may be walked yet, so no two of them are lanes of the same number
    graph = lowering.along([PlannedAxis(axis, Role.GRID, axis.size) for axis in (*draft.grid, *draft.inner)])
    leaves = axes_of(leaf for loop in graph.of_kind(Recurrence) for leaf in loop.carried)
    pairs = () if draft.steps else crossings(graph)  # in a loop those that are walked have to fit, no more
    crossed = frozenset(axis for first, then in pairs for axis in then.axes.intersection(first.over))
    swept = frozenset(node.axis for node in graph.of_kind(Swept))
    passes = {axis: passes_of(graph, axis) for axis in draft.inner}
    may_walk = functools.partial(_may_walk, graph, draft)
    tiles = tiles_of(graph, draft)
    return Seen(draft, lowering, graph, tiles, passes, leaves | swept, crossed, scheduled.width, may_walk)


def _may_walk(graph: Graph, draft: Draft, looped: frozenset[Axis]) -> bool:
    """Whether loops along all of these axes, and those that carry something, fit within each other."""
    order = [*draft.steps, *(axis for axis in (*draft.grid, *draft.inner) if axis in looped)]
    return fit_within_each_other(graph, frozenset(order), order)


def _without_loops(seen: Seen, scheduled: Scheduled) -> Candidate:
    """A schedule whose threads have room for what they read at once; else that with the least which reads as often."""
    draft, how, shrink = seen.draft, seen.draft.contracting, scheduled.shrink
    if how is None:
        tried = (_of_rows(seen, scheduled.arrays, shrink + more) for more in range(SMALLER))
    else:
        tried = (_contracting(seen, how, shrink, each) for each in CHANGES)
    least = next(tried)
    walked, held = _walked(least), _read_by_a_thread(least, how)
    once = {axis for axis, passes in seen.passes.items() if passes == 1}
    while held > draft.policy.cost.read_by_a_thread and (other := next(tried, None)) is not None:
        if _walked(other) - walked <= once and (found := _read_by_a_thread(other, how)) < held:
            least, held = other, found
    return least


def _walked(candidate: Candidate) -> set[Axis]:
    return {planned.axis for planned in candidate.axes if planned.role.is_sequential}


def _read_by_a_thread(candidate: Candidate, how: Contracting | None) -> int:
    draft, blocks = candidate.draft, {planned.axis: planned.block for planned in candidate.axes}
    if how is None:
        held = read_at_once(candidate.graph, draft, blocks) if draft.inner else 0
    elif held := read_for_factors(candidate.graph, draft, blocks):
        held += how.sums * math.prod(blocks[axis] for axis in (*draft.grid, *_of_one_program(draft, how)[-1:]))
    return held // (draft.policy.target.warp_size * candidate.num_warps)


def _of_rows(seen: Seen, arrays: Arrays, shrink: int) -> Candidate:
    draft, width = seen.draft, seen.width
    fast = fastest_of(draft, offsets_of(seen.graph, arrays.read, arrays.written))
    across = across_of(draft, fast) if fast in draft.grid and draft.inner else 1
    blocks, looped = inner_blocks(seen, across, shrink)
    whole = _whole(seen.tiles, blocks)
    unrolled = math.prod(axis.size for axis in draft.unrolled)
    grid_blocks(draft, blocks, fast, across, whole, unrolled, width, shrink)
    tile = whole * math.prod(blocks[axis] for axis in draft.grid)
    policy, lanes = draft.policy.blocks, draft.policy.target.warp_size
    elements = policy.of_a_thread if draft.inner or draft.shares else policy.of_a_thread // 2
    warps = tile * width // (lanes * elements)
    if draft.inner:
        room = lanes * draft.policy.cost.read_by_a_thread
        warps = max(warps, min(-(-read_at_once(seen.graph, draft, blocks) // room), tile // lanes))
    planned = _planned(draft, blocks, looped)
    warps = max(1, min(policy.warps, power_of_two(warps)))
    return Candidate(draft, planned, warps, seen.lowering)


def _contracting(seen: Seen, how: Contracting, shrink: int, change: Change) -> Candidate:
    """A block of rows, of columns and of what is summed; tiles have their dimensions in this order.

    Of a chain all columns are in between: each sum has its terms before its results. Terms that threads share are the
    first dimension: those along the longest axis.
    """
    draft = seen.draft
    grid = {axis.name: axis for axis in draft.grid}
    rows, columns, batch = (grid[name].size if name in grid else 1 for name in ("m", "n", "b"))
    whole = _of_one_program(draft, how)
    widths = [max(power_of_two(axis.size), LEAST) for axis in whole]
    summed = [axis for axis in draft.inner if axis not in whole]
    if how.walked:
        return _walking(seen, how, shrink, change, (whole, summed))
    sums = max((axis.size for axis in summed), default=1)
    block = block_of(how, rows, max(widths) if how.whole else columns, sums, batch, shrink, draft.policy)
    if how.whole:
        block = with_whole_rows(block, widths, how.exact, draft.policy)
    elif whole:
        block = with_whole(block, math.prod(a.size for a in whole), max(rows, columns), batch, how, draft.policy)
    block = change.of(block)
    lanes = [PlannedAxis(axis, Role.LANE, width) for axis, width in zip(whole, widths)]
    shared = max(summed, key=lambda axis: axis.size) if how.form is Form.OUTER and block.sums > 1 else None
    pieces = {axis: replace(block, sums=1) if shared not in (axis, None) else block for axis in summed}
    planned = _in_order(draft, block, lanes, [_summed(axis, pieces[axis]) for axis in summed], shared is not None)
    return Candidate(draft, planned, block.warps, seen.lowering, num_stages=block.stages, form=how.form)


def _walking(
    seen: Seen, how: Contracting, shrink: int, change: Change, inner: tuple[Sequence[Axis], Sequence[Axis]]
) -> Candidate:
    """A chain of which a program has some rows, and walks along a long axis, block by block."""
    (whole, summed), draft = inner, seen.draft
    sizes = {axis.name: axis.size for axis in draft.grid}
    walked = frozenset(own for axis in how.walked for own in draft.axes_of(axis))
    widths = {axis: max(power_of_two(axis.size), LEAST) for axis in (*whole, *summed)}
    held = sum(widths[axis] for axis in whole if axis not in walked)
    terms = math.prod(widths[axis] for axis in summed)
    rows = sizes.get("m", sizes.get("n", 1))  # whichever side the results begin with
    block = walked_block(how, rows, held, terms, sizes.get("b", 1), shrink, draft.policy)
    block = change.of(block)
    lanes = [
        PlannedAxis(axis, Role.LOOP, block.columns) if axis in walked else PlannedAxis(axis, Role.LANE, widths[axis])
        for axis in whole
    ]
    terms_of = [PlannedAxis(axis, Role.LANE, widths[axis]) for axis in summed]
    planned = _in_order(draft, block, lanes, terms_of, False)
    return Candidate(draft, planned, block.warps, seen.lowering, num_stages=block.stages, form=how.form)


def _in_order(
    draft: Draft, block: Block, lanes: Sequence[PlannedAxis], summed: Sequence[PlannedAxis], is_shared: bool
) -> tuple[PlannedAxis, ...]:
    """Rows before what is summed, and columns after it; what a program has all of is on the side that is not shared."""
    sizes = {"b": 1, "m": block.rows, "n": block.rows if lanes else block.columns}
    planned = {axis.name: PlannedAxis(axis, Role.GRID, sizes[axis.name]) for axis in draft.grid}
    unrolled = [PlannedAxis(axis, Role.UNROLL, 1) for axis in draft.unrolled]
    before = [planned[name] for name in ("b", "m") if name in planned]
    after = [planned["n"]] if "n" in planned else []
    if is_shared:
        return (*summed, *before, *lanes, *after, *unrolled)
    inner = (*lanes, *summed) if after else (*summed, *lanes)
    return (*before, *inner, *after, *unrolled)


def _of_one_program(draft: Draft, how: Contracting) -> list[Axis]:
    """What a program has all of, in the order of a chain."""
    order = how.whole or tuple(how.held)
    places = {axis: place for place, each in enumerate(order) for axis in draft.axes_of(each)}
    found = [axis for axis in draft.inner if axis in places]
    return sorted(found, key=places.__getitem__) if how.whole else found


def _summed(axis: Axis, block: Block) -> PlannedAxis:
    size = min(block.sums, max(power_of_two(axis.size), LEAST if block.sums > 1 else 1))
    return PlannedAxis(axis, Role.LOOP if axis.size > size else Role.LANE, size)


def _whole(tiles: Sequence[frozenset[Axis]], blocks: Mapping[Axis, int]) -> int:
    """The elements of the largest tile of inner axes."""
    return max((math.prod(blocks[a] for a in tile) for tile in tiles), default=1)


def _planned(draft: Draft, blocks: Mapping[Axis, int], looped: frozenset[Axis]) -> tuple[PlannedAxis, ...]:
    planned = [PlannedAxis(axis, Role.GRID, blocks[axis]) for axis in draft.grid]
    seldom, unbounded = draft.seldom, draft.unbounded
    planned += [PlannedAxis(axis, Role.LOOP, 1, axis in unbounded, axis in seldom) for axis in draft.steps]
    for axis in draft.inner:
        planned.append(PlannedAxis(axis, Role.LOOP if axis in looped else Role.LANE, blocks[axis]))
    return (*planned, *(PlannedAxis(axis, Role.UNROLL, 1) for axis in draft.unrolled))


def _with_loops(seen: Seen, scheduled: Scheduled) -> Iterator[Candidate]:
    """Loops are chains: programs of few lanes or of more, and of few warps or of more."""
    draft, policy = seen.draft, scheduled.policy
    whole_axes = {axis: power_of_two(axis.size) for axis in (*draft.grid, *draft.inner)}
    graph = seen.lowering.along(_planned(draft, whole_axes, frozenset()))
    shapes, shrink = scheduled.arrays.read, scheduled.shrink
    loops = residents(graph, draft, shapes)
    products = in_steps(graph, draft, shapes) if not shrink else None
    if products is not None:
        beside = work_of(graph, draft, resident_state(graph, draft), shapes, products.sums)
        yield from _with_dots(seen, beside, products)
    first = summed_by_threads(graph, draft, shapes)
    blocks, looped = inner_blocks(seen, 1, shrink, piece=policy.blocks.room, first=first)
    held = max(sum(each.elements(blocks) for each in loop) for loop in loops)
    reload = held * seen.width > policy.loops.kept_by_program
    if reload:
        # results can be made piece by piece
        whole_anyway = _computed(draft, graph) - first
        blocks, looped = inner_blocks(seen, 1, shrink, policy.blocks.room, whole_anyway, policy.blocks.room, first)
    if products is not None and (reload or looped):  # what is read again and again lies in shared memory instead
        return
    whole, works = _whole(seen.tiles, blocks), dict[int, Work]()
    moving = tiles_of(graph, draft, frozenset((*draft.grid, *draft.steps)))  # not what is summed before a loop begins
    is_swept = next(iter(graph.of_kind(Swept)), None) is not None
    for lanes in (_neighbours if is_swept else _lanes)(draft, _whole(moving, blocks)):
        blocks |= {axis: 1 for axis in draft.grid} | {axis: lanes for axis in draft.grid[-1:]}
        planned = _planned(draft, blocks, looped)
        emitted = seen.lowering.along(planned)
        work = works.get(id(emitted)) or works.setdefault(id(emitted), work_of(emitted, draft, loops[0], shapes))
        yield from _by_warps(seen, planned, work, whole * lanes, reload)


def _by_warps(seen: Seen, planned: tuple[PlannedAxis, ...], work: Work, tile: int, reload: bool) -> Iterator[Candidate]:
    """Programs of few warps or of more, as long as all lanes of a tile have something to do."""
    policy = seen.draft.policy
    counts = [1 << n for n in range(policy.blocks.warps.bit_length())]
    busy = [warps for warps in counts if warps == 1 or warps * policy.target.warp_size <= tile]
    for warps in (policy.blocks.warps // 2,) if reload else busy:
        estimated = estimate_of(work, planned, warps, seen.width, policy)
        code = code_of(work, planned, warps, policy)
        yield Candidate(seen.draft, planned, warps, seen.lowering, reload, estimated, code=code)


def _computed(draft: Draft, graph: Graph) -> frozenset[Axis]:
    """The inner axes of what is neither put out nor kept."""
    made = {axis for store in graph.stores for index in store.place for axis in index.axes}
    return frozenset(draft.inner) - made.union(*(keep.over for keep in graph.of_kind(Keep)))


def _with_dots(seen: Seen, work: Work, products: InSteps) -> Iterator[Candidate]:
    """Programs of as many rows as Triton multiplies with a matrix at least, or more; those are the last dimension."""
    draft, policy, width = seen.draft, seen.draft.policy, seen.width
    grid = [PlannedAxis(axis, Role.GRID, 1) for axis in draft.grid[:-1]]
    steps = [PlannedAxis(axis, Role.LOOP, 1) for axis in draft.steps]
    lanes = [PlannedAxis(axis, Role.LANE, power_of_two(axis.size)) for axis in products.lanes]
    unrolled = [PlannedAxis(axis, Role.UNROLL, 1) for axis in draft.unrolled]
    for rows in (LEAST // 2, LEAST):
        if rows < LEAST and policy.target.backend != "cuda":
            continue
        planned = (*grid, *steps, *lanes, PlannedAxis(draft.grid[-1], Role.GRID, rows), *unrolled)
        for warps in (policy.target.schedulers, 2 * policy.target.schedulers):
            warps = max(1, warps * LANES // policy.target.warp_size)
            beside = estimate_of(work, planned, warps, width, policy)
            whole = multiplied(beside, products.cycles(rows, policy), len(products.sums), policy.cost)
            yield Candidate(draft, planned, warps, seen.lowering, estimate=whole, form=Form.DOT)


def _lanes(draft: Draft, whole: int) -> list[int]:
    """Blocks of the last axis on the grid: a warp's worth of lanes or more, if there are so many."""
    if not draft.grid:
        return [1]
    most, warp = power_of_two(draft.grid[-1].size), draft.policy.target.warp_size
    return sorted({min(max(lanes // whole, 1), most) for lanes in (warp, 2 * warp, draft.policy.target.lanes)})


def _neighbours(draft: Draft, whole: int) -> list[int]:
    """Blocks of the last axis on the grid, each element with a tile of its own: at most a sector of memory."""
    if not draft.grid:
        return [1]
    programs = math.prod(axis.size for axis in draft.grid)
    room = max(draft.policy.blocks.piece // whole, 1)
    most = min(2 * programs // draft.policy.target.processors, draft.grid[-1].size, SECTOR, room)
    return [1 << (most.bit_length() - 1) if most else 1]


def code_of(work: Work, planned: Sequence[PlannedAxis], warps: int, policy: Policy) -> int:
    """The instructions of a thread for a step of each loop, as they are written: those of a loop in it once."""
    tiles = {each.axis: each.block for each in planned}
    copies = {each.axis: each.steps if each.role.is_unrolled else 1 for each in planned}
    once = [replace(each, times=1) for each in work.rounds]
    return round(spent_on(once, Shape(tiles, copies, warps, policy)).instructions)


def estimate_of(
    work: Work, planned: Sequence[PlannedAxis], warps: int, width: int, policy: Policy, programs: int = 0
) -> Estimate:
    one = {each.axis: 1 for each in planned}
    tiles = {each.axis: each.block for each in planned}
    pieces = {each.axis: each.steps for each in planned if not each.role.is_parallel}
    programs = programs or math.prod(each.steps for each in planned if each.role.is_parallel)
    return estimate(work, Shape(tiles, one | pieces, warps, policy), programs, width)
