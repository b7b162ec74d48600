"""What a draft means for the values of a kernel: which tiles there are, and which of them stay through its loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jaxpr2triton.graph.joint_sums import SUMS
from jaxpr2triton.graph.nodes import Collected, Compute, Graph, Load, Node, Recurrence, axes_of, operands_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import forward, readers_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.plan.schedule.cost import Resident
from jaxpr2triton.plan.schedule.draft import Draft


def tiles_of(space: Space, draft: Draft, beside: frozenset[Axis] | None = None) -> list[frozenset[Axis]]:
    """The sets of inner axes that some value has all at once; on demand only of values that have one `beside` them."""
    tiles = set()
    for node in space.graph.nodes:
        axes = node.axes | frozenset(node.over if isinstance(node, Collected) else ())
        mapped = frozenset(a for axis in axes for a in draft.axes_of(axis))
        if beside is None or mapped & beside:
            tiles.add(mapped & frozenset(draft.inner))
    return sorted(tiles, key=lambda tile: sorted(axis.name for axis in tile))


def passes_of(space: Space, draft: Draft, axis: Axis) -> int:
    """How often a loop over the axis would run: once more for each reduction along it that is wanted along it again."""

    def is_of(axes: Iterable[Axis]) -> bool:
        return any(axis in draft.axes_of(each) for each in axes)

    over = {node for node in space.graph.nodes if is_of(getattr(node, "over", ()))}
    depth = forward(space.graph.nodes, operands_of, lambda node, before: max(before, default=0) + (node in over))
    return max((depth[node] + (node not in over) for node in depth if node in over or is_of(node.axes)), default=1)


def residents(space: Space, shapes: Sequence[tuple[int, ...]], draft: Draft, graph: Graph) -> list[list[Resident]]:
    """For each loop what is loaded before it because no step changes it, and its state; the most first."""
    readers = readers_of(graph.nodes, operands_of)
    users = {node: axes_of(readers.get(node, ())) & space.steps for node in graph.of_kind(Load)}
    found = [
        [*_kept_in(step, users, space, shapes, draft), *resident_state(space, draft, step)]
        for step in sorted(space.steps, key=lambda axis: axis.name)
    ]
    size = {axis: power_of_two(axis.size) for axis in draft.inner}
    return sorted(found, key=lambda residents: -sum(each.elements(size) for each in residents))


def _kept_in(
    step: Axis, users: Mapping[Load, frozenset[Axis]], space: Space, shapes: Sequence[tuple[int, ...]], draft: Draft
) -> list[Resident]:
    tiles: dict[int, list[frozenset[Axis]]] = {}
    for node, steps in users.items():
        axes = frozenset(a for axis in node.axes for a in draft.axes_of(axis))
        tile = axes & frozenset(draft.inner)
        if tile and not node.axes & space.steps and (step in steps or not steps):
            copies = math.prod(axis.size for axis in draft.unrolled if axis in axes)
            tiles.setdefault(node.buffer, []).extend([tile] * copies)
    copies = draft.policy.cost.copies_of_operands
    most = {buffer: copies * math.prod(map(power_of_two, shapes[buffer])) for buffer in tiles}
    return [Resident(tuple(found), most[buffer]) for buffer, found in tiles.items()]


def _only_added_to(users: Sequence[Node]) -> bool:
    return all(isinstance(user, Compute) and user.eqn.primitive.name in SUMS for user in users) and len(users) == 1


def resident_state(space: Space, draft: Draft, step: Axis | None = None) -> list[Resident]:
    """What is carried in tiles, and what a step makes of it; on demand only of that loop and those around or in it."""
    policy = draft.policy.cost
    found = []
    users = readers_of(space.graph.nodes, operands_of)
    loops = [*space.graph.of_kind(Recurrence)]
    around = {axis for loop in loops if loop.step is step for axis in loop.axes}
    for loop in loops:
        if step is not None and loop.step is not step and loop.step not in around and step not in loop.axes:
            continue
        for leaf in loop.carried:
            axes = frozenset(a for axis in leaf.axes for a in draft.axes_of(axis))
            tile = axes & frozenset(draft.inner)
            if tile:
                few = policy.copies_of_sums if _only_added_to(users.get(leaf, ())) else policy.copies_of_state
                copies = few - 1 + math.prod(axis.size for axis in draft.unrolled if axis in axes)
                room = copies * math.prod(power_of_two(axis.size) for axis in tile)
                found.append(Resident((tile,) * copies, room))
    return found
