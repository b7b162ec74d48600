"""What all steps of a kernel's loops take; `beside_xla.py` asks for it.

    for t in range(512):
        for k in range(0, 512, 32):            16 times until a piece of u is there, and 256 KB for each program
            dot = tl.sum(h[:, None] * tl.load(u_ptr + …), 0)
        h = tanh(dot + x)                      the same, whoever multiplies

A matrix that no step changes is read again in each of them, if a program cannot keep it: by all programs, from the
second-level cache, which gives a processor so many bytes in a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from jaxpr2triton.graph.exchange import shown_at_once
from jaxpr2triton.graph.nodes import Graph, Load, Recurrence
from jaxpr2triton.graph.space import multiplied_in, size_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Estimate, Steps
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.plan.schedule.draft import Draft
from jaxpr2triton.policy import Policy


def waves_of(whole: Estimate, warps: int, policy: Policy) -> int:
    """How many times processors are filled with programs, one after the other: for what threads keep there is room."""
    target, cost = policy.target, policy.cost
    needed = min(whole.kept + cost.kept_beside, target.registers_of_a_thread + 1) * warps * target.warp_size
    return -(-whole.programs // (target.processors * max(target.registers // needed, 1)))


def steps_of(
    graph: Graph,
    draft: Draft,
    axes: Sequence[PlannedAxis],
    reload: bool,
    itemsizes: Sequence[int],
    whole: Estimate,
    beside: Estimate,
) -> Steps:
    """`whole` and `beside` are what the model says of a step, and of one that does not multiply."""
    policy = draft.policy
    planned = {each.axis: each for each in axes}
    read = sum(_read_again(graph, draft, planned, reload, itemsizes))
    processors = min(whole.programs, policy.target.processors)
    passing = read * whole.programs / (processors * _rate(processors, policy))
    waiting = policy.loops.under_way * sum(_pieces(graph, draft, planned))
    meeting = policy.loops.meeting_us * 1000 * policy.target.clock + policy.loops.cached  # and what is shown is there
    meetings = sum(_meetings(graph, draft)) * meeting
    cycles = round(max(whole.cycles, beside.cycles + waiting + passing) + meetings)
    loops = [loop for loop in graph.of_kind(Recurrence) if not loop.seldom]
    taken = [{loop.step} | loop.axes.intersection(draft.steps) for loop in loops]
    count = max((math.prod(axis.size for axis in steps) for steps in taken), default=1)
    return Steps(count, all(draft.unbounded.isdisjoint(steps) for steps in taken), cycles)


def _rate(processors: int, policy: Policy) -> float:
    """Bytes of the second-level cache that each of so many processors reads in a cycle."""
    cost = policy.cost
    return min(cost.cached_for_one, cost.cached * policy.target.processors / processors)


def _read_again(
    graph: Graph,
    draft: Draft,
    planned: Mapping[Axis, PlannedAxis],
    reload: bool,
    itemsizes: Sequence[int],
) -> Iterator[int]:
    """The bytes of each array that a program reads again in every step."""
    for node in graph.of_kind(Load):
        if node.axes.intersection(draft.steps):
            continue
        mine = [planned[axis] for axis in node.axes if not planned[axis].role.is_parallel]
        tile = math.prod(each.block for each in mine if each.role.is_vectorized)
        is_walked = any(each.role.is_sequential for each in mine)
        if is_walked or (reload and tile >= draft.policy.blocks.piece):
            yield math.prod(each.axis.size for each in mine) * itemsizes[node.buffer]


def _meetings(graph: Graph, draft: Draft) -> Iterator[float]:
    """How often all programs meet in a step of the innermost loop, for what they show each other at once."""
    loops = [{loop.step} | loop.axes.intersection(draft.steps) for loop in graph.of_kind(Recurrence)]
    innermost = max((size_of(steps) for steps in loops), default=1)
    return (size_of(group[0].axes) / innermost for group in set(shown_at_once(graph).values()))


def _pieces(graph: Graph, draft: Draft, planned: Mapping[Axis, PlannedAxis]) -> Iterator[int]:
    """How many pieces of each matrix a step waits for, one after the other."""
    for node in multiplied_in(graph, draft.steps):
        along = [planned[axis] for axis in node.axes.union(getattr(node, "over", ()))]
        walked = [each for each in along if each.role.is_sequential]
        pieces = math.prod(each.steps for each in walked if each.axis not in draft.steps)
        if pieces > 1:
            yield pieces * len(getattr(node, "operands", ()))
