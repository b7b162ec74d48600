"""A graph in words, one value a line.

    0: f32[row, col] = load x at [row, col]
    1: f32[row] = reduce_max 0 over col
    2: f32[row, col] = sub 0 1
    out at [row, col] = 2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.graph.nodes import (
    Accumulated,
    Carried,
    Choose,
    Compute,
    Constant,
    Element,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Place,
    Position,
    Product,
    Recurrence,
    Reduce,
    Swept,
    Take,
)
from jaxpr2triton.ir.index import Axis, Condition, Dynamic, Index, index_text


def show_graph(graph: Graph, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> str:
    """The values of a graph in their order, then what is stored; buffers have these names."""
    return "\n".join(_Shown(graph, inputs, outputs).lines())


class _Shown:
    def __init__(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.graph, self.inputs, self.outputs = graph, inputs, outputs
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}

    def lines(self) -> Iterator[str]:
        for node, number in self.numbers.items():
            axes = ", ".join(sorted(axis.name for axis in node.axes))
            yield f"{number}: {node.dtype.name}[{axes}] = {self._what(node)}"
        for store in self.graph.stores:
            name = self.outputs[store.output] if self.outputs else f"out{store.output}"
            yield f"{name} at {self._place(store.place)} = {self._of([store.value])}"

    def _written(self, node: Keep) -> str:
        if isinstance(node, Accumulated):
            places = ", ".join(self._place(at) + self._if(guard) for at, guard in zip(node.places, node.guards))
            return f"{node.op} {self._of(node.operands)} to {self._of([node.begun])} at {places}{_over(node.over)}"
        places = ", ".join(map(self._place, node.places))
        return f"keep {self._of(node.operands)} at {places}{_over(node.over)}"

    def _what(self, node: Node) -> str:
        match node:
            case Load():
                name = self.inputs[node.buffer] if self.inputs else f"in{node.buffer}"
                return f"load {name} at {self._place(node.place)}{self._if(node.guard)}"
            case Kept():
                return f"read {self._of([node.keep])} at {self._place(node.place)}{self._if(node.guard)}"
            case Constant():
                return str(node.value)
            case Position():
                return f"index {self._index(node.index)}"
            case Compute():
                return f"{node.eqn.primitive.name} {self._of(node.operands)}"
            case Product() | Element():
                return f"{type(node).__name__.lower()} {self._of(node.operands)}"
            case Choose():
                return f"{self._of([node.then])}{self._if(node.conditions)} else {self._of([node.other])}"
            case Keep():
                return self._written(node)
            case Reduce() | Swept():
                return f"{node.eqn.primitive.name} {self._of(node.operands)}{_over(node.over)}"
            case Take():
                return f"take {self._of([node.source])} where {node.axis} is {self._index(node.index)}"
            case Lookup():
                places = " and ".join(f"{axis} is {self._index(index)}" for axis, index in node.at)
                return f"look up {self._of([node.source])} where {places}"
            case Carried():
                return f"carried along {node.step}"
            case Recurrence():
                return self._loop(node)
            case Final():
                return f"the end of {self._of([node.recurrence.carried[node.position]])}"
            case _:
                return type(node).__name__

    def _loop(self, loop: Recurrence) -> str:
        word = "while" if loop.conditional else "backwards" if loop.reverse else "upwards"
        slots = zip(loop.carried, loop.starts, loop.nexts)
        carried = ", ".join(f"{self._of([c])} from {self._of([s])} to {self._of([n])}" for c, s, n in slots)
        return f"loop {loop.step} {word}: {carried}"

    def _of(self, nodes: Iterable[Node]) -> str:
        return " ".join(str(self.numbers.get(node, "?")) for node in nodes)

    def _place(self, place: Place) -> str:
        return f"[{', '.join(map(self._index, place))}]"

    def _if(self, conditions: Sequence[Condition]) -> str:
        found = [f"{c.low} <= {self._index(c.index)} < {c.high}" for c in conditions]
        return f" if {' and '.join(found)}" if found else ""

    def _index(self, index: Index) -> str:
        return index_text(index, self._atom)

    def _atom(self, atom: Axis | Dynamic) -> str:
        if isinstance(atom, Axis):
            return atom.name
        number = self._of([self.graph.computed[atom.key]]) if atom.key in self.graph.computed else "?"
        return f"<{number} in {atom.low} … {atom.high}>" if atom.clamped else f"<{number}>"


def _over(axes: Sequence[Axis]) -> str:
    return f" over {', '.join(axis.name for axis in axes)}" if axes else ""
