"""What is zero in the lanes beyond an axis, and need not be masked before it is summed.

    x = tl.load(…, mask=k_ok, other=0.0)
    w = tl.load(…, mask=k_ok, other=0.0)
    tl.reduce(tl.where(k_ok, x * w, 0.0), 0, _add)      →      tl.reduce(x * w, 0, _add)

A product is zero there if both of its factors are, or if the other one is finite: infinity times zero is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Graph, Kept, Load, Lookup, Node, Product, Reduce
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.rules.rows import ADDED

Zeros = Mapping[Node, frozenset[Axis]]

_KEEP_ZERO = {"neg", "abs", "square", "sqrt", "convert_element_type", "rounded", "member"}
_OF_ZEROS = {"add", "add_any", "sub", "max", "min"}


def zeros_outside(graph: Graph, ragged: frozenset[Axis]) -> Zeros:
    """For each value the axes beyond which it is zero."""
    found: dict[Node, frozenset[Axis]] = {}
    for node in graph.nodes:
        found[node] = _of(node, found, ragged)
    return found


def _of(node: Node, known: Zeros, ragged: frozenset[Axis]) -> frozenset[Axis]:
    match node:
        case Load() | Kept():
            return node.axes & ragged  # where they lie outside, nothing is read
        case Constant():
            return frozenset() if node.value else ragged
        case Product():
            return _of_product(node.operands, known)
        case Choose():
            return known[node.then] & known[node.other]
        case Lookup() if node.turned:
            return frozenset(node.turned.get(axis, axis) for axis in known[node.source])
        case Reduce() if node.eqn.primitive.name in ADDED:
            return _common(node.operands, known) - frozenset(node.over)
        case Compute():
            return _of_result(node, known)
    return frozenset()


def _of_result(node: Compute, known: Zeros) -> frozenset[Axis]:
    name, operands = node.eqn.primitive.name, node.operands
    if name in _KEEP_ZERO or name in _OF_ZEROS:
        return _common(operands, known)
    if name == "mul":
        return _of_product(operands, known)
    if name == "select_n":
        return _common(operands[1:], known)
    if name == "div" and isinstance(operands[1], Constant) and operands[1].value:
        return known[operands[0]]
    return frozenset()


def _of_product(factors: Sequence[Node], known: Zeros) -> frozenset[Axis]:
    one, other = factors
    found = known[one] & known[other]
    for factor, beside in ((one, other), (other, one)):
        if _is_finite(beside):
            found |= known[factor]
    return found


def _common(operands: Sequence[Node], known: Zeros) -> frozenset[Axis]:
    return frozenset.intersection(*(known[operand] for operand in operands))


def _is_finite(node: Node) -> bool:
    """Whether a value is a number in all lanes: an integer, what was made of one, or a constant."""
    if isinstance(node, Constant):
        return bool(np.isfinite(np.float64(node.value)))
    if isinstance(node, Compute) and node.eqn.primitive.name == "convert_element_type":
        return not is_float(node.operands[0].dtype) and np.dtype(node.dtype).itemsize >= 4
    return not is_float(node.dtype)
