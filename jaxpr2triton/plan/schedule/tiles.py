"""What a draft means for the values of a kernel: which tiles there are, and which of them stay through its loops."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

from jaxpr2triton.graph.exchange import is_spread_out
from jaxpr2triton.graph.joint_sums import SUMS
from jaxpr2triton.graph.nodes import (
    Carried,
    Collected,
    Compute,
    Graph,
    Kept,
    Load,
    Node,
    Recurrence,
    Reduce,
    axes_of,
    operands_of,
)
from jaxpr2triton.graph.streams import streams_along
from jaxpr2triton.ir.dataflow import readers_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.plan.schedule.cost import Resident
from jaxpr2triton.plan.schedule.draft import Draft


def tiles_of(graph: Graph, draft: Draft, beside: frozenset[Axis] | None = None) -> list[frozenset[Axis]]:
    """The sets of inner axes that some value has all at once; on demand only of values that have one `beside` them."""
    tiles = set()
    for node in graph.nodes:
        axes = node.axes | frozenset(node.over if isinstance(node, Collected) else ())
        if beside is None or axes & beside:
            tiles.add(axes & frozenset(draft.inner))
    return sorted(tiles, key=lambda tile: sorted(axis.name for axis in tile))


def passes_of(graph: Graph, axis: Axis) -> int:
    """How often a loop over the axis would run: once more for each reduction along it that is wanted along it again.

    Streams go along with what they depend on.
    """
    over = {node for node in graph.nodes if axis in getattr(node, "over", ())}
    streams = streams_along(graph, frozenset((axis,)))
    depth: dict[Node, int] = {}
    for node in sorted(graph.nodes, key=lambda node: node.number):
        stream = streams.get(node) if isinstance(node, Reduce) else None
        before = operands_of(node) if stream is None else stream.beside
        depth[node] = max((depth[each] for each in before), default=0) + (node in over)
        if stream is not None:
            depth[node] = max(depth[node], depth[stream.leader])
    made = frozenset().union(*(stream.made for stream in streams.values()))
    read = (each for node in graph.nodes if node not in made and node not in streams for each in operands_of(node))
    again = {store.value for store in graph.stores}.union(read)
    along = (node for node in depth if axis in node.axes and (node not in made or node in again))
    return max((depth[node] + (node not in over) for node in (*over, *along)), default=1)


def residents(graph: Graph, draft: Draft, shapes: Sequence[tuple[int, ...]]) -> list[list[Resident]]:
    """For each loop what is loaded before it because no step changes it, and its state; the most first."""
    readers = readers_of(graph.nodes, operands_of)
    users = {node: axes_of(readers.get(node, ())).intersection(draft.steps) for node in graph.of_kind(Load)}
    found = [
        [*_kept_in(step, users, shapes, draft), *resident_state(graph, draft, step)]
        for step in sorted(draft.steps, key=lambda axis: axis.name)
    ]
    size = {axis: power_of_two(axis.size) for axis in draft.inner}
    return sorted(found, key=lambda residents: -sum(each.elements(size) for each in residents))


def _kept_in(
    step: Axis, users: Mapping[Load, frozenset[Axis]], shapes: Sequence[tuple[int, ...]], draft: Draft
) -> list[Resident]:
    tiles: dict[int, list[frozenset[Axis]]] = {}
    for node, steps in users.items():
        tile = node.axes.intersection(draft.inner)
        if tile and node.axes.isdisjoint(draft.steps) and (step in steps or not steps):
            tiles.setdefault(node.buffer, []).append(tile)
    copies = draft.policy.cost.copies_of_operands
    most = {buffer: copies * math.prod(map(power_of_two, shapes[buffer])) for buffer in tiles}
    return [Resident(tuple(found), most[buffer]) for buffer, found in tiles.items()]


def _only_added_to(users: Sequence[Node]) -> bool:
    return all(isinstance(user, Compute) and user.eqn.primitive.name in SUMS for user in users) and len(users) == 1


def resident_state(graph: Graph, draft: Draft, step: Axis | None = None) -> list[Resident]:
    """What is carried in tiles, and what a step makes of it; on demand only of that loop and those around or in it."""
    policy = draft.policy.cost
    found = []
    users = readers_of(graph.nodes, operands_of)
    loops = [*graph.of_kind(Recurrence)]
    around = {axis for loop in loops if loop.step is step for axis in loop.axes}
    for loop in loops:
        if step is not None and loop.step is not step and loop.step not in around and step not in loop.axes:
            continue
        pieces: dict[Hashable, list[Carried]] = {}  # of one value that is carried
        for leaf, after in zip(loop.carried, loop.nexts):
            if leaf.axes.intersection(draft.inner):
                pieces.setdefault((getattr(after, "eqn", after), leaf.axes), []).append(leaf)
        for leaves in pieces.values():
            tile = leaves[0].axes.intersection(draft.inner)
            few = policy.copies_of_sums if _only_added_to(users.get(leaves[0], ())) else policy.copies_of_state
            copies = few - 1 + len(leaves)
            room = copies * math.prod(power_of_two(axis.size) for axis in tile)
            found.append(Resident((tile,) * copies, room))
    return [*found, *_read_in_a_step(graph, draft)] if is_spread_out(graph) else found


def _read_in_a_step(graph: Graph, draft: Draft) -> Iterator[Resident]:
    """What programs read between two meetings: nobody goes on while it is under way, so threads have all of it."""
    for node in graph.of_kind((Load, Kept)):
        tile = node.axes.intersection(draft.inner)
        if tile and not node.axes.isdisjoint(draft.steps):
            yield Resident((tile,), math.prod(power_of_two(axis.size) for axis in tile))
