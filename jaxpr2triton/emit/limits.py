"""Numbers that are brought into a known range: for an index, and where the program does so itself."""

from __future__ import annotations

from jaxpr2triton.emit.scope import Limits
from jaxpr2triton.graph.nodes import Compute, Constant, Node
from jaxpr2triton.ir.dtypes import is_float


def limits_of(node: Node) -> Limits | None:
    """What `clamp` brings into which range, if that is a known one of integers."""
    if not isinstance(node, Compute) or node.eqn.primitive.name != "clamp" or is_float(node.dtype):
        return None
    low, value, high = node.operands
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return None
    return value, int(low.value), int(high.value)


def clamp(text: str, low: int, high: int) -> str:
    return f"tl.minimum(tl.maximum({text}, {low}), {high})"
