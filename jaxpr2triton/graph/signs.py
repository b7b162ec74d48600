"""Numbers whose sign bit is never set, NaN or not: they are in the order of their bits."""

from __future__ import annotations

import numpy as np

from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Lookup, Node, Take
from jaxpr2triton.ir.dtypes import is_float


def has_no_sign(node: Node) -> bool:
    """Whether a float is an absolute value, or one of several."""
    if not is_float(node.dtype):
        return False
    match node:
        case Constant():
            return not bool(np.signbit(np.float64(node.value)))
        case Choose():
            return has_no_sign(node.then) and has_no_sign(node.other)
        case Take() | Lookup():
            return has_no_sign(node.source)
        case Compute():
            name, operands = node.eqn.primitive.name, node.operands
            chosen = operands[1:] if name == "select_n" else operands
            return name == "abs" or (name in ("select_n", "max") and all(map(has_no_sign, chosen)))
    return False
