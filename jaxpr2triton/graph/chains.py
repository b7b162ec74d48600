"""Contractions of which one is a factor of the next, in one kernel: a program has rows of them all, and whole rows.

    s[m,k] = Σ_d q[m,d] a[d,k]
    p[m,k] = exp (s - max_k s) / Σ_k …
    y[m,o] = Σ_k p[m,k] v[k,o]             rows m | whole: k, o

Between them nothing is written. Each program makes all that is in between for its rows, and nobody else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Product, Reduce
from jaxpr2triton.graph.sides import Axes, is_contraction, is_small
from jaxpr2triton.graph.space import Space
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.products import EXACT, factor_dtype, has_units_for, input_precision


@dataclass(frozen=True)
class Chain:
    batch: Axes
    rows: Axes
    whole: tuple[Axis, ...]  # in the order in which tiles have them: what is summed before what it makes
    sums: Axes  # what is summed first, and is not made on the way
    products: tuple[Reduce, ...]

    def is_exact(self, target: Target) -> bool:
        """Whether f32 is multiplied without losing a bit, so that threads hold the factors as well."""
        floats = (node for node in self.products if factor_dtype(node.eqn) == np.float32)
        return any(input_precision(node.eqn, target) == EXACT for node in floats)

    def fits(self, policy: Policy) -> bool:
        """Whether a program has room for whole rows, and units that multiply them."""
        dtypes = (factor_dtype(node.eqn) for node in self.products)
        if not all(dtype is not None and has_units_for(dtype, policy.target) for dtype in dtypes):
            return False
        most = numbers.COMMON.side_of_a_matrix // (2 if self.is_exact(policy.target) and len(self.products) > 1 else 1)
        return max(axis.size for axis in self.whole) <= most


def chain_of(space: Space, unrolled: int) -> Chain | None:
    """The chain that a kernel is, if it is one; `unrolled` is how many terms of a sum are variables."""
    nodes = [node for node in space.graph.of_kind(Reduce) if not is_small(node, unrolled)]
    products = tuple(filter(_is_product, nodes))
    if space.steps or len(products) < 2:
        return None
    shared = frozenset(space.axes) - space.inner
    for node in nodes:
        shared &= node.axes
    sides = [_columns(node, shared) for node in products]
    batch, _ = sides[0]
    if not shared - batch or any(each != batch or len(own) != 1 for each, own in sides):
        return None
    made = frozenset().union(*(own for _, own in sides))
    if not _holds_together(nodes, products, shared, made) or frozenset(space.axes) - shared - made:
        return None
    order = dict.fromkeys(
        axis for node, (_, own) in zip(products, sides) for axis in (*node.over, *own) if axis in made
    )
    sums = frozenset().union(*(node.over for node in products)) - made
    return Chain(batch, shared - batch, tuple(order), sums, products)


def _holds_together(nodes: Sequence[Reduce], products: Sequence[Reduce], shared: Axes, made: Axes) -> bool:
    """Whether something is summed that is made on the way, by a sum that needs no more than rows of it."""
    others = (node for node in nodes if node not in products)
    of_rows = all(node.axes == shared and made.issuperset(node.over) for node in others)
    whole = all(made.issuperset(node.over) or made.isdisjoint(node.over) for node in products)
    return of_rows and whole and any(not made.isdisjoint(node.over) for node in nodes)


def _is_product(node: Reduce) -> bool:
    is_product = is_contraction(node) and all(isinstance(operand, Product) for operand in node.operands)
    return is_product and factor_dtype(node.eqn) is not None


def _columns(node: Reduce, shared: Axes) -> tuple[Axes, Axes]:
    """The batch, and the columns of a contraction one factor of which has all rows; no columns where none has."""
    batch: Axes = frozenset()
    columns: Axes = frozenset()
    for term in node.operands:
        assert isinstance(term, Product)
        one, other = (factor.axes - frozenset(node.over) for factor in term.operands)
        if not shared <= one:
            one, other = other, one
        if one != shared:
            return frozenset(), frozenset()
        batch, columns = batch | (other & shared), columns | (other - shared)
    return batch, columns
