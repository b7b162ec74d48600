"""Sums that go along with a contraction: of what one of its sides reads, along the same axis.

    w[m,n] = Σ_k x[k,m] g[k,n]                            each program has rows and columns, and reads blocks of both
    b[n]   = Σ_k g[k,n]              its columns are summed while they are there; those of the first rows are stored

    y[m,n] = Σ_k x[m,k] w[k,n] / |x[m]|                   what is made of such a sum is there for the result as well
    y[n]   = Σ_k x[k] w[k,n] / |x|                        the other side may be one row, as when a token is decoded

So nothing is read twice. Programs that differ in the other side do the same work, which is little beside theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from jaxpr2triton import policy
from jaxpr2triton.graph.nodes import Collected, Graph, Kept, Load, Node, Recurrence, Reduce, Store, operands_of
from jaxpr2triton.graph.sides import is_contraction, sides_of
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.index import Axis


def summed_beside(graph: Graph, axes: frozenset[Axis]) -> frozenset[Node]:
    """The sums that every program of a contraction along all these axes makes of what it reads anyway."""
    if next(graph.of_kind(Recurrence), None) is not None:
        return frozenset()
    sums = list(graph.of_kind(Reduce))
    products = [node for node in sums if is_contraction(node)]
    if not products or not all(_is_along_all(node, axes) for node in products):
        return frozenset()
    over, read = frozenset(products[0].over), _read_by(*products)
    if read is None or any(frozenset(node.over) != over for node in products):
        return frozenset()
    most = policy.COMMON.summed_beside
    if math.prod(axis.size for axis in axes | over) > most:
        return frozenset()
    return frozenset(node for node in sums if _goes_along(node, over, axes, read))


def is_beside(store: Store, sums: frozenset[Node]) -> bool:
    """Whether a result is made of such sums alone: one of the programs that have it stores it."""
    made_of = list(_below(store.value, until=sums)) if sums else []
    collected = {node for node in (store.value, *made_of) if isinstance(node, Collected | Recurrence)}
    return bool(collected) and collected <= sums


def _is_along_all(node: Reduce, axes: frozenset[Axis]) -> bool:
    """Whether a contraction has a result for each index of these axes, and one side alone varies along some of them."""
    sides = sides_of(node, axes, 0)
    return node.axes == axes and sides is not None and bool(sides.rows)


def _goes_along(node: Reduce, over: frozenset[Axis], axes: frozenset[Axis], read: frozenset[object]) -> bool:
    mine = _read_by(node)
    return node.axes < axes and frozenset(node.over) == over and mine is not None and mine <= read


def _read_by(*nodes: Reduce) -> frozenset[object] | None:
    """What is read for these sums, and where; None if they are made of something that has to be over first."""
    below = list(_below(*nodes))
    if any(isinstance(node, Collected | Recurrence | Kept) for node in below):
        return None
    return frozenset((node.buffer, node.place) for node in below if isinstance(node, Load))


def _below(*nodes: Node, until: frozenset[Node] = frozenset()) -> Iterator[Node]:
    """What these are made of, without going on from some."""

    def operands(node: Node) -> tuple[Node, ...]:
        return () if node in until else operands_of(node)

    return reachable((operand for node in nodes for operand in operands(node)), operands)
