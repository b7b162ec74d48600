"""What a step of a kernel's loops takes, by a model that is only good for comparing schedules of one kernel.

A thread has its share of every value's elements. A step takes the longest of three:

    alone    one warp by itself: each instruction waits for the one before, and lanes that meet wait for each other
    busy     the instructions of all warps that share a scheduler, one after the other
    memory   the requests of all warps that share a processor

The numbers are those of `policy.Cost`. What is the same for all schedules, such as the time that a load takes, is left
out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxpr2triton.graph.nodes import (
    Choose,
    Compute,
    Graph,
    Keep,
    Kept,
    Load,
    Node,
    Recurrence,
    Reduce,
    Swept,
    Take,
    Turn,
)
from jaxpr2triton.graph.renamed import share_renamed
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Estimate
from jaxpr2triton.plan.schedule.draft import Draft, axes_of_space
from jaxpr2triton.policy import Policy
from jaxpr2triton.policy.machines import Cost
from jaxpr2triton.rules.rows import TABLE

Axes = frozenset[Axis]


@dataclass(frozen=True)
class Resident:
    """What of one operand is loaded before a loop and stays in registers through it."""

    tiles: tuple[Axes, ...]  # inner axes of each load, once for each variable it becomes
    most: int  # elements of the operand, with room for lanes outside of it

    def elements(self, blocks: Mapping[Axis, int]) -> int:
        return min(sum(math.prod(blocks[a] for a in tile) for tile in self.tiles), self.most)


@dataclass(frozen=True)
class Work:
    """What one step does, for all elements along some axes: how often, per step of the innermost loop."""

    resident: tuple[Resident, ...]
    instructions: defaultdict[Axes, float] = field(default_factory=lambda: defaultdict(float))
    requests: defaultdict[Axes, float] = field(default_factory=lambda: defaultdict(float))
    meetings: defaultdict[tuple[Axes, Axes], float] = field(default_factory=lambda: defaultdict(float))  # along these
    ends: defaultdict[Axes, float] = field(default_factory=lambda: defaultdict(float))  # lanes that end all together


@dataclass(frozen=True)
class Shape:
    """Blocks of all axes, how many pieces of them a program walks, and the warps of a program."""

    blocks: Mapping[Axis, int]
    pieces: Mapping[Axis, int]
    shared: Axes  # axes on the grid: nothing meets along them
    num_warps: int
    policy: Policy

    @property
    def threads(self) -> int:
        return self.policy.target.warp_size * self.num_warps

    def elements(self, axes: Axes) -> int:
        """Of each thread."""
        lanes = math.prod(self.blocks[axis] for axis in axes)
        return -(-lanes // self.threads) * math.prod(self.pieces[axis] for axis in axes)

    def times(self, axes: Axes) -> int:
        """Pieces of tiles, one after the other."""
        return math.prod(self.pieces[axis] for axis in axes if self.blocks[axis] > 1)

    def lanes(self, axes: Axes) -> int:
        return math.prod(self.blocks[axis] for axis in axes)


def as_emitted(space: Space, draft: Draft) -> Graph:
    """The graph without what lanes make that can stand for each other."""
    return share_renamed(space.graph, _exchangeable(space, draft))


def work_of(
    space: Space, draft: Draft, resident: Sequence[Resident], graph: Graph, without: frozenset[Node] = frozenset()
) -> Work:
    """What the steps of all loops do, seen from the axes of a draft; `graph` is as it will be emitted."""
    trips = {node: math.prod(axis.size for axis in _steps_of(node, space)) for node in graph.nodes}
    longest = max((trips[node] for node in graph.nodes if _steps_of(node, space)), default=1)
    work = Work(tuple(resident))
    address = draft.policy.cost.address

    def along(axes: Iterable[Axis]) -> Axes:
        return frozenset(a for axis in axes for a in draft.axes_of(axis)) - frozenset(draft.steps)

    for node in graph.nodes:
        if not _steps_of(node, space) or node in without:
            continue
        share = trips[node] / longest
        all_axes = along([*node.axes, *getattr(node, "over", ())])
        work.instructions[all_axes] += _weight(node, address) * share
        met = along(_met(node)) - frozenset(draft.unrolled)
        if met:
            work.meetings[all_axes, met] += share
        if isinstance(node, (Load, Keep, Kept)):
            work.requests[all_axes] += share
        if isinstance(node, Recurrence) and node.conditional:
            work.ends[along(node.carried[0].axes)] += 1
    for store in graph.stores:
        axes = [axis for index in store.place for axis in index.axes]
        steps = space.steps.intersection(axes)
        if steps:
            work.requests[along(axes)] += math.prod(axis.size for axis in steps) / longest
            work.instructions[along(axes)] += address
    return work


def _exchangeable(space: Space, draft: Draft) -> list[Axes]:
    """Axes that are lanes of the same number: values are not computed along two of them."""
    lanes = {axis: axis.size for axis in draft.inner}
    groups: dict[int, set[Axis]] = {}
    for axis in axes_of_space(space):
        found = draft.axes_of(axis)
        if len(found) == 1 and next(iter(found)) in lanes and axis.size == lanes[next(iter(found))]:
            groups.setdefault(axis.size, set()).add(axis)
    return [frozenset(group) for group in groups.values() if len(group) > 1]


def _steps_of(node: Node, space: Space) -> Axes:
    if isinstance(node, Recurrence):
        return frozenset((node.step,)) | (node.axes & space.steps)
    return space.steps & node.axes.union(getattr(node, "over", ()))


def _weight(node: Node, address: int) -> int:
    """Instructions for each element, of which a request takes some for its address."""
    match node:
        case Compute():
            return TABLE[node.eqn.primitive.name].flops
        case Reduce():
            return len(node.operands)
        case Swept():
            return TABLE[node.eqn.primitive.name].flops(node.axis.size)
        case Load() | Kept() | Keep():
            return address
        case Choose() | Take() | Turn():
            return 1
        case _:  # an addition takes a product along, and all others are not computed
            return 0


def _met(node: Node) -> Iterator[Axis]:
    """The axes along which lanes read each other."""
    match node:
        case Reduce() | Swept():
            yield from node.over
        case Take():
            yield node.axis
        case Turn():
            yield from (axis for pair in node.renamed for axis in pair)


def estimate(work: Work, shape: Shape, programs: int, width: int) -> Estimate:
    """A step of this work in this shape; `width` is 2 where values take two registers."""
    policy, target = shape.policy.cost, shape.policy.target
    processors = target.processors
    warps = max(programs / processors, 1) * shape.num_warps  # on one processor
    per_thread = [(count, shape.elements(axes)) for axes, count in work.instructions.items()]
    instructions = sum(count * elements for count, elements in per_thread)
    requests = sum(count * shape.elements(axes) for axes, count in work.requests.items())
    kept = sum(each.elements(shape.blocks) for each in work.resident) * width / shape.threads
    spilled = policy.spill * max(kept - policy.kept_by_a_thread, 0)
    barriers = _barriers(work, shape)
    chain = sum(count * max(elements * target.issue, policy.latency) for count, elements in per_thread)
    alone = chain + _shuffles(work, shape) * policy.shuffle + spilled
    alone += barriers * (policy.barrier + policy.barrier_of_a_warp * shape.num_warps)
    busy = (instructions + spilled) * target.issue * math.ceil(warps / target.schedulers)
    cycles = max(alone, busy, requests * warps * policy.request) * _more_steps(work, shape)
    return Estimate(round(instructions), round(barriers), round(kept), programs, processors, round(cycles))


def multiplied(beside: Estimate, cycles: float, sums: int, policy: Cost) -> Estimate:
    """A step that multiplies matrices, of what it does beside that: each waits until its factor is in shared memory."""
    barriers = policy.barriers_of_a_product * sums
    whole = beside.cycles + cycles * math.ceil(beside.programs / beside.processors) + barriers * policy.barrier
    return replace(beside, barriers=beside.barriers + barriers, cycles=round(whole))


def _shuffles(work: Work, shape: Shape) -> float:
    """Exchanges between the lanes of a warp, one after the other: five for a sum over all of them."""
    most = shape.policy.target.warp_size
    met = ((min(shape.lanes(met), most), shape.times(axes) * count) for (axes, met), count in work.meetings.items())
    return sum(count * (lanes - 1).bit_length() for lanes, count in met)


def _barriers(work: Work, shape: Shape) -> float:
    """None where a program is one warp, nor where each warp has rows of its own."""
    if shape.num_warps == 1:
        return 0.0
    meetings = [
        shape.times(axes) * count
        for (axes, met), count in work.meetings.items()
        if shape.lanes(met) > 1 and shape.lanes(axes & shape.shared) < shape.num_warps
    ]
    ends = [count for axes, count in work.ends.items() if shape.lanes(axes) > 1]
    policy = shape.policy.cost
    return sum(meetings) * policy.barriers_of_a_meeting + sum(ends) * policy.barriers_of_an_end


def _more_steps(work: Work, shape: Shape) -> float:
    """How many times the steps of a lone lane a program takes, which goes on until its last lane ends."""
    return 1 + shape.policy.cost.waiting * sum(math.log2(shape.lanes(axes)) for axes in work.ends)
