"""Contractions of which one is a factor of the next, in one kernel: a program has rows of them all, and whole rows.

    s[m,k] = Σ_d q[m,d] a[d,k]
    p[m,k] = exp (s - max_k s) / Σ_k …
    y[m,o] = Σ_k p[m,k] v[k,o]             rows m | whole: k, o

Between them nothing is written. Each program makes all that is in between for its rows, and nobody else does. A long
axis like k is *walked*, if no reduction along it waits for another one, but for streams (`streams.py`): then a program
holds a block of it at a time, and it may be as long as it likes. What all sums treat alike, as queries and the heads
that look at the same keys, is one axis here, and becomes one in the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Product, Reduce, operands_of
from jaxpr2triton.graph.sides import Axes, is_contraction, is_small
from jaxpr2triton.graph.space import Space
from jaxpr2triton.graph.streams import Shrinking, streams_along
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.dataflow import sources
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.products import EXACT, LEAST, factor_dtype, has_units_for, input_precision


@dataclass(frozen=True)
class Chain:
    batch: Axes
    rows: Axes
    whole: tuple[Axes, ...]  # in the order in which tiles have them: what is summed before what it makes
    sums: Axes  # what is summed first, and is not made on the way
    products: tuple[Reduce, ...]
    walked: Axes = frozenset()  # of what is whole: block by block
    goes_along: bool = False  # a product, with an extreme: chunks of what is walked can be put together

    def is_exact(self, target: Target) -> bool:
        """Whether f32 is multiplied without losing a bit, so that threads hold the factors as well."""
        floats = (node for node in self.products if factor_dtype(node.eqn) == np.float32)
        return any(input_precision(node.eqn, target) == EXACT for node in floats)

    def fits(self, policy: Policy) -> bool:
        """Whether a program has room for whole rows, and there are programs enough that walk, or they are soon done."""
        longest = max((_size(axes) for axes in self.whole if axes <= self.walked), default=0)
        soon = longest <= policy.products.terms_of_a_chunk
        enough = soon or are_enough(_size(self.rows), _size(self.batch), policy)
        return enough and self.has_room(policy)

    def has_room(self, policy: Policy) -> bool:
        """Whether a program has room for whole rows, and units that multiply them."""
        dtypes = [factor_dtype(node.eqn) for node in self.products]
        if not all(dtype is not None and has_units_for(dtype, policy.target) for dtype in dtypes):
            return False
        most = numbers.COMMON.side_of_a_matrix // (2 if self.is_exact(policy.target) and len(self.products) > 1 else 1)
        held = max((_size(axes) for axes in self.whole if not axes <= self.walked), default=1)
        if not self.walked:
            return held <= most
        is_wide = len(self.products) <= 2 and all(dtype is not None and dtype.itemsize <= 2 for dtype in dtypes)
        return held <= (2 if is_wide else 1) * most and _size(self.sums) <= 2 * most

    def fits_in_chunks(self, policy: Policy) -> bool:
        """Whether it fits, or does if programs share out what it walks along, and others put that together."""
        return self.fits(policy) or (self.goes_along and self.has_room(policy))


def are_enough(rows: int, batch: int, policy: Policy) -> bool:
    """Whether there are programs enough that walk along all terms, which for few rows is all that they do.

    For many some processors may be idle: to write all pairs, and to read them, takes 8 times as long.
    """
    return policy.keeps_busy(batch, 2) if rows <= LEAST else policy.keeps_busy(batch * max(rows / LEAST, 1), 0.25)


def _size(axes: Axes) -> int:
    return math.prod(axis.size for axis in axes)


def chain_of(space: Space, unrolled: int) -> Chain | None:
    """The chain that a kernel is, if it is one; `unrolled` is how many terms of a sum are variables."""
    return _chain_of(space, _reductions(space, unrolled), frozenset(space.axes) - space.inner)


def aside_of(space: Space, unrolled: int) -> list[Reduce]:
    """Without what a kernel would be a chain that walks: sums that lack its rows, and would be made for each block.

    Or one for which all else that is summed along the same axis waits; or those along what products sum first, as that
    of squares beside products, of which distances are made; or a product that is a factor of others and smaller than
    one of those, as the one that makes queries. Of several ways it is the one that stores least.
    """
    ways = _ways_aside(space, unrolled)
    return min(ways, key=lambda aside: sum(_size(node.axes) for node in aside), default=[])


def _ways_aside(space: Space, unrolled: int) -> Iterator[list[Reduce]]:
    nodes, axes = _reductions(space, unrolled), frozenset(space.axes)
    products = list(filter(_is_product, nodes))
    first = _factors(space, nodes, products)
    for rows in (axes, *(axes - {columns} for columns in space.axes)) if products else ():
        lacking = [node for node in nodes if not rows <= node.axes]
        others = [node for node in nodes if node not in lacking and node not in products]
        along = [node for node in others if any(set(node.over) <= set(product.over) for product in products)]
        for aside in ([], *([node] for node in others), along, *([node] for node in first)):
            aside = [*dict.fromkeys((*lacking, *aside))]
            rest = _chain_of(space, [node for node in nodes if node not in aside], rows) if aside else None
            if rest is not None and rest.walked:
                yield aside


def _factors(space: Space, nodes: Sequence[Reduce], products: Sequence[Reduce]) -> list[Reduce]:
    """The products that wait for no other reduction, and are smaller than another product."""
    above = sources(space.graph.nodes, operands_of, nodes)
    largest = max((_size(node.axes) for node in products), default=0)
    return [node for node in products if above[node] <= {node} and _size(node.axes) < largest]


def _reductions(space: Space, unrolled: int) -> list[Reduce]:
    return [node for node in space.graph.of_kind(Reduce) if not is_small(node, unrolled)]


def _chain_of(space: Space, nodes: Sequence[Reduce], shared: Axes) -> Chain | None:
    """The chain of these reductions, of programs that share out these axes."""
    products = tuple(filter(_is_product, nodes))
    if space.steps or not products:
        return None
    shared = shared.intersection(*(node.axes for node in nodes))
    sides = [_columns(node, shared) for node in products]
    batch, _ = sides[0]
    if any(each != batch or not own for each, own in sides):
        return None
    made = frozenset().union(*(own for _, own in sides))
    if not _holds_together(nodes, products, shared, made) or frozenset(space.axes) - shared - made:
        return None
    order = _in_order(products, [own for _, own in sides])
    if order is None:
        return None
    walked, goes_along = _walked(space, nodes, order)
    sums = frozenset().union(*(node.over for node in products)) - made
    rows = shared - batch
    found = Chain(batch, rows, order, sums, products, walked, goes_along)
    return found if walked or (rows and len(products) > 1) else None


def _in_order(products: Sequence[Reduce], columns: Sequence[Axes]) -> tuple[Axes, ...] | None:
    """What is summed before what it makes; None where one of them takes together what is apart in another one."""
    made = frozenset().union(*columns)
    pairs = (each for node, own in zip(products, columns) for each in (frozenset(node.over) & made, own) if each)
    order = tuple(dict.fromkeys(pairs))
    apart = sum(map(len, order)) > len(made) or any(len(frozenset(node.over) - made) > 1 for node in products)
    return None if apart else order


def _walked(space: Space, nodes: Sequence[Reduce], made: Sequence[Axes]) -> tuple[Axes, bool]:
    """The long axes that need not be whole: no reduction along one waits for another one, but for streams.

    And whether a product is a stream.
    """
    found: Axes = frozenset()
    goes_along = False
    fixed = space.axes_read_anywhere.union(space.axes)
    for axes in made:
        along = [node for node in nodes if not axes.isdisjoint(node.over)]
        together = all(axes.issuperset(node.over) for node in along)
        if not axes.isdisjoint(fixed) or _size(axes) <= numbers.COMMON.side_of_a_matrix or not together:
            continue
        streams = streams_along(space.graph, axes)
        above = sources(space.graph.nodes, operands_of, along)
        if all(node in streams or above[node] <= {node} for node in along):
            found |= axes
            goes_along |= any(isinstance(streams.get(node), Shrinking) and _is_product(node) for node in along)
    return found, goes_along


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
        if not one <= shared:
            one, other = other, one
        if not one <= shared <= one | other:
            return frozenset(), frozenset()
        batch, columns = batch | (other & shared), columns | (other - shared)
    return batch, columns
