"""Reductions of what two sides make together: which of a kernel's axes each side varies along.

    y[m,n] = Σ_k x[m,k] w[k,n]               rows m | columns n
    d[i,j] = Σ_k (x[k,i] - y[k,j])²          rows i | columns j
    s[i]   = Σ_j exp(-(x[i] - y[j])²) v[j]   rows i | nothing: the other side is what is summed

No operand has all of these axes, so a program that holds a block of rows and one of columns reads each of them once for
many of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.graph.nodes import Load, Node, Product, Reduce, operands_of
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.index import Axis

Axes = frozenset[Axis]


@dataclass(frozen=True)
class Sides:
    """The axes of a kernel's results, by which side of its contractions varies along them."""

    rows: Axes
    columns: Axes
    sums: Axes

    def fits(self, other: Sides) -> bool:
        """Whether one kernel can hold both with the same blocks."""
        mine, theirs = {self.rows, self.columns}, {other.rows, other.columns}
        return mine == theirs


def is_contraction(node: Node) -> bool:
    """Whether it is a `dot_general` of more than a few terms."""
    return isinstance(node, Reduce) and node.eqn.primitive.name == "dot_general" and not is_short_contraction(node.eqn)


def sides_of(node: Reduce, roots: Axes, unrolled: int) -> Sides | None:
    """The two sides of one reduction; None if some operand varies along all that its results do.

    What does not vary along the sum is loaded once, and is of no side. `unrolled` is how many terms of a sum are
    variables, so that it is no reduction of lanes.
    """
    over, mine = frozenset(node.over), node.axes & roots
    if all(isinstance(operand, Product) for operand in node.operands):
        pairs = [operand.operands for operand in node.operands if isinstance(operand, Product)]
        left, right = _axes(left for left, _ in pairs) & mine, _axes(right for _, right in pairs) & mine
        rows, columns = left - right, right - left
        return Sides(rows, columns, over) if rows else Sides(columns, rows, over)
    wide = {load.axes & mine for load in loads_of(node.operands, unrolled) if load.axes & over}
    if mine in wide or not wide:
        return None
    one = max(wide, key=lambda axes: (math.prod(axis.size for axis in axes), sorted(axis.name for axis in axes)))
    other = frozenset().union(*(axes for axes in wide if axes != one))
    if not one:
        return Sides(mine, frozenset(), over)
    return Sides(one - other, (other or mine) - one, over)


def is_two_sided(node: Node, unrolled: int) -> bool:
    """Whether a sum of more than a few terms has two sides of its own."""
    if not isinstance(node, Reduce) or math.prod(axis.size for axis in node.over) <= unrolled:
        return False
    sides = sides_of(node, node.axes, unrolled)
    return is_contraction(node) or (sides is not None and bool(sides.rows and sides.columns))


def is_small(node: Node, unrolled: int) -> bool:
    return isinstance(node, Reduce) and math.prod(axis.size for axis in node.over) <= unrolled


def _axes(nodes: Iterable[Node]) -> Axes:
    return frozenset().union(*(node.axes for node in nodes))


def loads_of(nodes: Iterable[Node], unrolled: int) -> list[Load]:
    """What is loaded for these values, but not for other reductions."""

    def operands(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, Reduce) and not is_small(node, unrolled) else operands_of(node)

    return [node for node in reachable(nodes, operands) if isinstance(node, Load)]
