"""Numbers whose sign bit is never set, NaN or not: they are in the order of their bits."""

from __future__ import annotations

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Lookup, Node, Take
from jaxpr2triton.ir.dataflow import on_demand
from jaxpr2triton.ir.dtypes import is_float


def has_no_sign(node: Node) -> bool:
    """Whether a float is an absolute value, or one of several."""
    return on_demand(node, _chosen_of, lambda each, chosen: all(chosen) if chosen else _is_without(each), {})


def _chosen_of(node: Node) -> tuple[Node, ...]:
    """The values of which it is one."""
    match node:
        case Choose():
            return node.then, node.other
        case Take() | Lookup():
            return (node.source,)
        case Compute() if node.eqn.primitive.name == "select_n":
            return node.operands[1:]
        case Compute() if node.eqn.primitive.name == "max":
            return node.operands
    return ()


def _is_without(node: Node) -> bool:
    if not is_float(node.dtype):
        return False
    if isinstance(node, Constant):
        return not bool(np.signbit(np.float64(node.value)))
    return isinstance(node, Compute) and node.eqn.primitive.name == "abs"
