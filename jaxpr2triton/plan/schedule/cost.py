"""What a step of a kernel's loops takes, by a model that is only good for comparing schedules of one kernel.

A step takes the longest of three:

    alone    one warp by itself: each instruction waits for what it reads, and lanes that meet wait for each other
    busy     the instructions of all warps that share a scheduler, one after the other
    memory   the requests of all warps that share a processor

`values.py` says what there is to do, `walked.py` how long one warp takes for it. Numbers are those of `policy.Cost`.
What is the same for all schedules, such as the time that a load takes, is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxpr2triton.graph.nodes import Accumulated, Graph, Keep, Kept, Load, Node, Recurrence
from jaxpr2triton.hardware import SECTOR
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Estimate
from jaxpr2triton.plan.schedule.draft import Draft
from jaxpr2triton.plan.schedule.values import Axes, Round, Shapes, rounds_of, steps_of
from jaxpr2triton.plan.schedule.walked import Shape, spent_on
from jaxpr2triton.policy.machines import Cost


@dataclass(frozen=True)
class Resident:
    """What of one operand is loaded before a loop and stays in registers through it."""

    tiles: tuple[Axes, ...]  # inner axes of each load, once for each variable it becomes
    most: int  # elements of the operand, with room for lanes outside of it

    def elements(self, blocks: Mapping[Axis, int]) -> int:
        return min(sum(math.prod(blocks[a] for a in tile) for tile in self.tiles), self.most)


@dataclass(frozen=True)
class Work:
    """What one step does, per step of the innermost loop."""

    resident: tuple[Resident, ...]
    rounds: tuple[Round, ...] = ()
    requests: defaultdict[Axes, float] = field(default_factory=lambda: defaultdict(float))
    ends: defaultdict[Axes, float] = field(default_factory=lambda: defaultdict(float))  # lanes that end all together


def work_of(
    graph: Graph, draft: Draft, resident: Sequence[Resident], shapes: Shapes, without: frozenset[Node] = frozenset()
) -> Work:
    """What the steps of all loops of the kernel do whose graph this is."""
    counted = frozenset(draft.steps)
    trips = {node: math.prod(axis.size for axis in steps_of(node, counted)) for node in graph.nodes}
    longest = max((trips[node] for node in graph.nodes if steps_of(node, counted)), default=1)
    work = Work(tuple(resident), rounds_of(graph, draft, shapes, without))

    def along(axes: Iterable[Axis]) -> Axes:
        return frozenset(axes) - counted

    for node in graph.nodes:
        if not steps_of(node, counted) or node in without:
            continue
        if isinstance(node, (Load, Keep, Kept)):
            times = SECTOR if isinstance(node, Accumulated) else 1
            work.requests[along([*node.axes, *getattr(node, "over", ())])] += times * trips[node] / longest
        if isinstance(node, Recurrence) and node.conditional and not node.seldom:
            work.ends[along(node.carried[0].axes)] += 1
    for store in graph.stores:
        axes = [axis for index in store.place for axis in index.axes]
        if steps := counted.intersection(axes):
            work.requests[along(axes)] += math.prod(axis.size for axis in steps) / longest
    return work


def estimate(work: Work, shape: Shape, programs: int, width: int) -> Estimate:
    """A step of this work in this shape; `width` is 2 where values take two registers."""
    policy, target = shape.policy.cost, shape.policy.target
    processors = target.processors
    warps = _of_one(programs / processors, policy) * shape.num_warps
    spent = spent_on(work.rounds, shape)
    requests = sum(count * shape.elements(axes) for axes, count in work.requests.items())
    kept = sum(each.elements(shape.blocks) for each in work.resident) * width / shape.threads
    spilled = policy.spill * max(kept - policy.room_of_a_thread, 0)
    ends = sum(work.ends.values()) * policy.barriers_of_a_meeting if shape.num_warps > 1 else 0
    barriers = spent.barriers + ends
    alone = spent.cycles + spilled + ends * (policy.barrier + policy.barrier_of_a_warp * shape.num_warps)
    busy = (spent.instructions + spilled) * target.issue * math.ceil(warps / target.schedulers)
    cycles = max(alone, busy, requests * warps * policy.request) * _more_steps(work, shape)
    return Estimate(round(spent.instructions), round(barriers), round(kept), programs, processors, round(cycles))


def _of_one(programs: float, policy: Cost) -> float:
    """Of so many programs a processor: what the one has that has most. More than run at once take their turns."""
    return math.ceil(programs) if programs <= policy.programs_at_once else programs


def multiplied(beside: Estimate, cycles: float, sums: int, policy: Cost) -> Estimate:
    """A step that multiplies matrices, of what it does beside that: each waits until its factor is in shared memory."""
    barriers = policy.barriers_of_a_meeting * sums
    whole = beside.cycles + cycles * math.ceil(beside.programs / beside.processors) + barriers * policy.barrier
    return replace(beside, barriers=beside.barriers + barriers, cycles=round(whole))


def _more_steps(work: Work, shape: Shape) -> float:
    """How many times the steps of a lone lane a program takes, which goes on until its last lane ends."""
    return 1 + shape.policy.cost.waiting * sum(math.log2(shape.lanes(axes)) for axes in work.ends)
