"""Operands that change nothing, where a walk finds them: the zeros beside a padded piece, the ones of an unrolled axis.

What stands outside of an array's pieces is only known here, place by place. As for XLA, x + 0.0 is x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxpr2triton.graph.nodes import Constant, Node
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.jaxprs import Eqn

_NEUTRAL = {"add": 0, "add_any": 0, "sub": 0, "mul": 1}
_NEUTRAL_TRUTHS = {"and": True, "or": False}


def left_alone(eqn: Eqn, operands: Sequence[Node]) -> Node | None:
    """The operand that an equation hands on as it is, if the other one is neutral."""
    neutrals: Mapping[str, int] = _NEUTRAL_TRUTHS if is_bool(operands[0].dtype) else _NEUTRAL
    neutral = neutrals.get(eqn.primitive.name)
    if neutral is None:
        return None
    first, second = operands
    if isinstance(second, Constant) and second.value == neutral:
        return first
    if isinstance(first, Constant) and first.value == neutral and eqn.primitive.name != "sub":
        return second
    return None


def is_zero(node: Node) -> bool:
    """Whether a value is the zero that a masked load gives."""
    return isinstance(node, Constant) and not np.asarray(node.value).tobytes().strip(b"\0")
