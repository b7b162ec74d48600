"""16-bit values, which kernels hold as f32: which of them have 16-bit digits only, and which had better have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxpr2triton.ir.dtypes import held, triton_name
from jaxpr2triton.rules.base import in_parentheses
from jaxpr2triton.rules.literals import is_bare
from jaxpr2triton.rules.nodes import (
    Choose,
    Compute,
    Constant,
    Graph,
    Keep,
    Kept,
    Load,
    Node,
    Reduce,
    Take,
    Turn,
    operands_of,
)

# Primitives whose result jumps, or for which the operand's dtype counts. They see 16-bit values as JAX does, rounded,
# so that a value that one program stores and another computes again is equal to itself.
SUDDEN = {"eq", "ne", "lt", "le", "gt", "ge", "eq_to", "le_to", "lt_to", "sign", "floor", "ceil", "round", "rem"} | {
    "convert_element_type",
    "bitcast_convert_type",
}
CHOICES = {"max", "min", "select_n", "clamp", "neg", "abs", "stop_gradient", "copy", "reduce_max", "reduce_min"}


class Narrow:
    """What is known about the 16-bit values of one kernel."""

    def __init__(self, graph: Graph) -> None:
        self._exact: set[Node] = set()
        self._read_elsewhere = _stored_and_read(graph)
        for node in graph.nodes:
            alike = [operand for operand in operands_of(node) if operand.dtype == node.dtype]
            rounded = _is_rounded(node) or node in self._read_elsewhere
            if rounded or (_chooses(node) and self._exact.issuperset(alike)):
                self._exact.add(node)

    def operands(self, node: Compute, texts: Sequence[str]) -> list[str]:
        """The operands of a computation, rounded where it matters.

        The difference of a value that is stored and one that is computed is such a place: in `exp(x - max(x))` the
        maximum may be what another program has found, and `x` computed again.
        """
        sudden = node.eqn.primitive.name in SUDDEN or (
            node.eqn.primitive.name == "sub"
            and any(operand in self._exact and not isinstance(operand, Constant) for operand in node.operands)
        )
        if not sudden:
            return list(texts)
        return [self.rounded(operand, text) for operand, text in zip(node.operands, texts)]

    def rounded(self, node: Node, text: str) -> str:
        """A 16-bit value that is held as f32, with the digits that JAX would keep."""
        return text if node in self._exact or is_bare(text) else _cut(node, text)

    def changes(self, node: Node) -> bool:
        """Whether a value is rounded where it gets its name.

        What is computed from a stored value has to be what other programs compute from it: they ask, for instance,
        whether that is the minimum that this one has found.
        """
        return node in self._read_elsewhere and held(node.dtype) != node.dtype

    def named(self, node: Node, text: str) -> str:
        """A value as it gets its name."""
        return _cut(node, text) if self.changes(node) and not is_bare(text) else text


def _cut(node: Node, text: str) -> str:
    if held(node.dtype) == node.dtype:
        return text
    return f"{in_parentheses(text)}.to({triton_name(node.dtype)}).to({triton_name(held(node.dtype))})"


def _stored_and_read(graph: Graph) -> set[Node]:
    """The values that are computed for memory, and for the kernel itself as well."""
    stored = [store.value for store in graph.stores]
    stored += [operand for keep in graph.of_kind(Keep) for operand in keep.operands]
    found: set[Node] = set()
    while stored:
        match stored.pop():
            case Take(source=source) | Turn(source=source):
                stored.append(source)
            case Choose(then=then, other=other):
                stored += [then, other]
            case Compute() | Reduce() as node if not _is_rounded(node):
                found.add(node)
    others = (node for node in graph.nodes if not isinstance(node, (Keep, Take, Turn, Choose)))
    return found & {operand for node in others for operand in operands_of(node)}


def _is_rounded(node: Any) -> bool:
    if isinstance(node, Compute):
        return bool(node.eqn.primitive.name == "convert_element_type")
    return isinstance(node, (Load, Kept, Constant))


def _chooses(node: Any) -> bool:
    """Whether the result is one of the operands, but for its sign."""
    if isinstance(node, (Take, Turn)):
        return True
    return isinstance(node, (Compute, Reduce)) and node.eqn.primitive.name in CHOICES
