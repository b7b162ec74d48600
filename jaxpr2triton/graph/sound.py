"""Whether a graph is one: what the emitter takes for granted, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import (
    Carried,
    Choose,
    Collected,
    Final,
    Graph,
    Kept,
    Load,
    Node,
    Position,
    Recurrence,
    Swept,
    Take,
    Turn,
    axes_in,
    axes_of,
    operands_of,
)
from jaxpr2triton.graph.show import show_graph
from jaxpr2triton.ir.index import Axis

Shape = tuple[int, ...]


def check_graph(graph: Graph, shapes: Sequence[Shape], shared: frozenset[Axis] = frozenset()) -> None:
    """Operands stand before what uses them; values vary along what their parts do; loads without a guard are inside.

    `shapes` are those of the operands; `shared` are the axes on the grid, along which nothing meets.
    """
    before: set[Node] = set()
    for node in graph.nodes:
        late = [operand for operand in operands_of(node) if operand not in before]
        _require(not late, graph, node, "is made of something that comes later")
        before.add(node)
        _require(node.axes == _axes(node), graph, node, f"varies along {_named(_axes(node))}")
        met = shared.intersection(_met(node))
        _require(not met, graph, node, f"meets along {_named(met)}, which programs share out")
        if isinstance(node, Load) and not node.guard:
            inside = zip(node.place, shapes[node.buffer], strict=True)
            outside = [index for index, size in inside if index.bounds[0] < 0 or index.bounds[1] >= size]
            _require(not outside, graph, node, "reads outside of its array")
    for node in graph.computed.values():
        _require(node in before, graph, node, "is the number of a place, but not computed")
    for store in graph.stores:
        beyond = store.value.axes - frozenset(axes_in(store.place, ()))
        _require(store.value in before, graph, store.value, "is stored, but not computed")
        _require(not beyond, graph, store.value, f"is stored at a place that does not vary along {_named(beyond)}")


def _axes(node: Node) -> frozenset[Axis]:
    """The axes that a value varies along, by what it is made of."""
    parts = axes_of(operands_of(node))
    match node:
        case Load():
            return parts | frozenset(axes_in(node.place, node.guard))
        case Kept():
            return parts | frozenset(axes_in(node.place, node.guard))
        case Position():
            return parts | node.index.axes
        case Choose():
            return parts | frozenset(axes_in((), node.conditions))
        case Take():
            return (node.source.axes - {node.axis}) | node.index.axes | axes_of(node.needs)
        case Turn():
            renamed = dict(node.renamed)
            return frozenset(renamed.get(axis, axis) for axis in node.source.axes)
        case Recurrence():
            return axes_of(node.carried) - {node.step}
        case Final():
            return node.recurrence.carried[node.position].axes - {node.recurrence.step}
        case Carried():
            return node.axes | {node.step}
        case Swept():
            return parts | {node.axis}
        case Collected():
            own = [axis for place in getattr(node, "places", ()) for axis in axes_in(place, ())]
            return (parts | frozenset(own)) - frozenset(node.over)
        case _:
            return parts


def _met(node: Node) -> frozenset[Axis]:
    """The axes all of whose elements one program has to have."""
    match node:
        case Recurrence():
            return node.held | {node.step}
        case Collected():
            return frozenset(node.over)
        case Take():
            return frozenset((node.axis,))
        case _:
            return frozenset()


def _require(holds: bool, graph: Graph, node: Node, what: str) -> None:
    if not holds:
        number = graph.nodes.index(node) if node in graph.nodes else "?"
        raise CompilerBug(f"value {number} {what}:\n{show_graph(graph)}")


def _named(axes: frozenset[Axis]) -> str:
    return ", ".join(sorted(axis.name for axis in axes)) or "nothing"
