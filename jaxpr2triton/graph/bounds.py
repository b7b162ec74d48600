"""What the integers of a graph lie between, by the sizes of axes and by what is computed.

    rem(n, 8) of n in 0 … 99      →      0 … 7
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Lookup, Node, Position, Take
from jaxpr2triton.ir.dataflow import postorder
from jaxpr2triton.ir.dtypes import is_bool, is_float

Bounds = tuple[int, int]  # the least and the largest value, both included


@dataclass
class Ranges:
    """The bounds of nodes, found out once for each. (Elsewhere: range analysis.)"""

    known: dict[Node, Bounds | None] = field(default_factory=dict)

    def of(self, node: Node) -> Bounds | None:
        """What an integer lies between; None for other numbers."""
        for each in postorder([node], _parts, self.known):
            self.known[each] = self._found(each)
        return self.known[node]

    def _found(self, node: Node) -> Bounds | None:
        if is_float(node.dtype) or not (is_bool(node.dtype) or np.issubdtype(node.dtype, np.integer)):
            return None
        all_of_it = (0, 1) if is_bool(node.dtype) else (int(np.iinfo(node.dtype).min), int(np.iinfo(node.dtype).max))
        found: Bounds | None = None
        match node:
            case Constant():
                found = (int(node.value), int(node.value))
            case Position():
                found = node.index.bounds
            case Choose():
                found = _union([self.known[node.then], self.known[node.other]])
            case Take() | Lookup():
                found = self.known[node.source]
            case Compute():
                found = self._of_result(node)
        if found is None or found[0] < all_of_it[0] or found[1] > all_of_it[1]:
            return all_of_it  # it may wrap around
        return found

    def _of_result(self, node: Compute) -> Bounds | None:
        name, known = node.eqn.primitive.name, [self.known[operand] for operand in node.operands]
        if name == "select_n":
            return _union(known[1:])
        found = [bounds for bounds in known if bounds is not None]
        if len(found) < len(known):
            return None
        match name, found:
            case "convert_element_type" | "rounded", [one]:
                return one
            case "add" | "add_any", [(a, b), (c, d)]:
                return a + c, b + d
            case "sub", [(a, b), (c, d)]:
                return a - d, b - c
            case "mul", [(a, b), (c, d)]:
                products = (a * c, a * d, b * c, b * d)
                return min(products), max(products)
            case "max", [(a, b), (c, d)]:
                return max(a, c), max(b, d)
            case "min", [(a, b), (c, d)]:
                return min(a, c), min(b, d)
            case "clamp", [(a, b), (c, d), (e, f)]:
                return min(max(a, c), e), min(max(b, d), f)
            case "rem", [(a, b), (c, d)] if c > 0:
                return max(a, 1 - d) if a < 0 else 0, min(b, d - 1) if b > 0 else 0
            case "and", [(a, b), (c, d)] if a >= 0 and c >= 0:
                return 0, min(b, d)
        return None


def _parts(node: Node) -> tuple[Node, ...]:
    """What the bounds of a node depend on."""
    if is_float(node.dtype):
        return ()
    match node:
        case Choose():
            return node.then, node.other
        case Take() | Lookup():
            return (node.source,)
        case Compute():
            return node.operands
    return ()


def _union(bounds: Sequence[Bounds | None]) -> Bounds | None:
    found = [each for each in bounds if each is not None]
    if len(found) < len(bounds):
        return None
    return min(low for low, _ in found), max(high for _, high in found)
