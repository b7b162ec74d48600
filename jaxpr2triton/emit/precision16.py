"""16-bit values, which kernels hold as f32: which of them have 16-bit digits only, and which had better have."""

from __future__ import annotations

import ast
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
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.rules.literals import is_bare


class Narrow:
    """What is known about the 16-bit values of one kernel."""

    def __init__(self, graph: Graph) -> None:
        self._exact: set[Node] = set()
        for node in graph.nodes:
            alike = [operand for operand in operands_of(node) if operand.dtype == node.dtype]
            if _is_rounded(node) or (_chooses(node) and self._exact.issuperset(alike)):
                self._exact.add(node)

    def operands(self, node: Compute, values: Sequence[ast.expr]) -> list[ast.expr]:
        """The operands of a computation, rounded where it matters."""
        if node.eqn.primitive.name not in SUDDEN:
            return list(values)
        return [self.rounded(operand, value) for operand, value in zip(node.operands, values)]

    def rounded(self, node: Node, value: ast.expr) -> ast.expr:
        """A 16-bit value that is held as f32, with the digits that JAX would keep."""
        if node in self._exact or is_bare(value) or working_dtype(node.dtype) == node.dtype:
            return value
        return expr("{}.to({}).to({})", value, triton_name(node.dtype), triton_name(working_dtype(node.dtype)))


def _is_rounded(node: Any) -> bool:
    if isinstance(node, Compute):
        return node.eqn.primitive.name in ("convert_element_type", "rounded")
    return isinstance(node, (Load, Kept, Constant))


def _chooses(node: Any) -> bool:
    """Whether the result is one of the operands, but for its sign."""
    if isinstance(node, (Take, Lookup)):
        return True
    return isinstance(node, (Compute, Reduce, Swept)) and node.eqn.primitive.name in CHOICES
