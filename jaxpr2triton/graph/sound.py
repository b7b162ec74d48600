"""Whether a graph is one: what the emitter takes for granted, checked before it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import (
    Accumulated,
    Collected,
    Exchange,
    Graph,
    Load,
    Lookup,
    Node,
    Recurrence,
    Take,
    axes_in,
    operands_of,
    varies_along,
)
from jaxpr2triton.graph.show import show_graph
from jaxpr2triton.ir.index import Axis

Shape = tuple[int, ...]


def check_graph(graph: Graph, shapes: Sequence[Shape], shared: frozenset[Axis] = frozenset()) -> None:
    """Operands stand before what uses them; values vary along what their parts do, and what loops carry along all that
    they are given; loads without a guard are inside, and what meets at computed places is added once.

    `shapes` are those of the operands; `shared` are the axes on the grid, along which nothing meets.
    """
    before: set[Node] = set()
    for node in graph.nodes:
        late = [operand for operand in operands_of(node) if operand not in before]
        _require(not late, graph, node, "is made of something that comes later")
        before.add(node)
        _require(node.axes == varies_along(node), graph, node, f"varies along {_named(varies_along(node))}")
        met = shared.intersection(met_along(node))
        _require(not met, graph, node, f"meets along {_named(met)}, which programs share out")
        if isinstance(node, Recurrence):
            more = _not_carried(node)
            _require(not more, graph, node, f"is given what varies along {_named(more)}, which it does not carry")
        if isinstance(node, Load) and not node.guard:
            inside = zip(node.place, shapes[node.buffer], strict=True)
            outside = [index for index, size in inside if index.bounds[0] < 0 or index.bounds[1] >= size]
            _require(not outside, graph, node, "reads outside of its array")
    _check_added_once(graph)
    for node in graph.computed.values():
        _require(node in before, graph, node, "is the number of a place, but not computed")
    for store in graph.stores:
        beyond = store.value.axes - frozenset(axes_in(store.place, ()))
        _require(store.value in before, graph, store.value, "is stored, but not computed")
        _require(not beyond, graph, store.value, f"is stored at a place that does not vary along {_named(beyond)}")


def _check_added_once(graph: Graph) -> None:
    steps = frozenset(loop.step for loop in graph.of_kind(Recurrence))
    added: dict[tuple[int, ...], int] = {}
    for node in graph.of_kind(Accumulated):
        for place, value in zip(node.places, node.operands):
            axes = value.axes.union(node.over, axes_in(place, ())) - steps
            added[node.slot] = added.get(node.slot, 0) + math.prod(axis.size for axis in axes)
        many = node.eqn.invars[2].aval.size
        _require(added[node.slot] <= many, graph, node, f"adds {added[node.slot]} times, and there are {many} updates")


def met_along(node: Node) -> frozenset[Axis]:
    """The axes all of whose elements one program has to have."""
    match node:
        case Recurrence():
            return node.held | {node.step}
        case Exchange():
            return frozenset(node.over) - node.shared
        case Collected():
            return frozenset(node.over)
        case Take():
            return frozenset((node.axis,))
        case Lookup():
            return node.moved
        case _:
            return frozenset()


def _not_carried(loop: Recurrence) -> frozenset[Axis]:
    """The axes that what a loop starts with, or goes on with, has beyond those of what it carries."""
    starts = (start.axes - (leaf.axes - {loop.step}) for start, leaf in zip(loop.starts, loop.carried))
    nexts = (value.axes - leaf.axes for value, leaf in zip(loop.nexts, loop.carried))
    return frozenset().union(*starts, *nexts)


def _require(holds: bool, graph: Graph, node: Node, what: str) -> None:
    if not holds:
        number = graph.nodes.index(node) if node in graph.nodes else "?"
        raise CompilerBug(f"value {number} {what}:\n{show_graph(graph)}")


def _named(axes: frozenset[Axis]) -> str:
    return ", ".join(sorted(axis.name for axis in axes)) or "nothing"
