"""16-bit values, which kernels hold as f32: which of them have 16-bit digits only, and which had better have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxpr2triton.graph.nodes import (
    Compute,
    Constant,
    Graph,
    Kept,
    Load,
    Lookup,
    Node,
    Reduce,
    Swept,
    Take,
    operands_of,
)
from jaxpr2triton.ir.dtypes import triton_name, working_dtype
from jaxpr2triton.ir.rounded import CHOICES, SUDDEN
from jaxpr2triton.rules.base import in_parentheses
from jaxpr2triton.rules.literals import is_bare


class Narrow:
    """What is known about the 16-bit values of one kernel."""

    def __init__(self, graph: Graph) -> None:
        self._exact: set[Node] = set()
        for node in graph.nodes:
            alike = [operand for operand in operands_of(node) if operand.dtype == node.dtype]
            if _is_rounded(node) or (_chooses(node) and self._exact.issuperset(alike)):
                self._exact.add(node)

    def operands(self, node: Compute, texts: Sequence[str]) -> list[str]:
        """The operands of a computation, rounded where it matters."""
        if node.eqn.primitive.name not in SUDDEN:
            return list(texts)
        return [self.rounded(operand, text) for operand, text in zip(node.operands, texts)]

    def rounded(self, node: Node, text: str) -> str:
        """A 16-bit value that is held as f32, with the digits that JAX would keep."""
        if node in self._exact or is_bare(text) or working_dtype(node.dtype) == node.dtype:
            return text
        return f"{in_parentheses(text)}.to({triton_name(node.dtype)}).to({triton_name(working_dtype(node.dtype))})"


def _is_rounded(node: Any) -> bool:
    if isinstance(node, Compute):
        return node.eqn.primitive.name in ("convert_element_type", "rounded")
    return isinstance(node, (Load, Kept, Constant))


def _chooses(node: Any) -> bool:
    """Whether the result is one of the operands, but for its sign."""
    if isinstance(node, (Take, Lookup)):
        return True
    return isinstance(node, (Compute, Reduce, Swept)) and node.eqn.primitive.name in CHOICES
