"""Numbers that are brought into a known range: for an index, and where the program does so itself."""

from __future__ import annotations

import ast

from jaxpr2triton.emit.scope import Limits
from jaxpr2triton.graph.nodes import Compute, Constant, Node
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.tree import expr


def limits_of(node: Node) -> Limits | None:
    """What `clamp` brings into which range, if that is a known one of integers."""
    if not isinstance(node, Compute) or node.eqn.primitive.name != "clamp" or is_float(node.dtype):
        return None
    low, value, high = node.operands
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return None
    return value, int(low.value), int(high.value)


def clamp(value: ast.expr, low: int, high: int) -> ast.expr:
    return expr("tl.minimum(tl.maximum({}, {}), {})", value, low, high)
