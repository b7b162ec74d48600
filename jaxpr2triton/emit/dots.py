"""Sums of products as Triton multiplies matrices.

    acc = tl.zeros((128, 128), tl.float32)
    for k_start in range(0, 4096, 64):
        …
        acc = tl.dot(x, w, acc, input_precision="ieee")

Both factors are cast to what the user multiplies: that is the rounding that JAX does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxpr2triton.emit.text import Spelling, Tile
from jaxpr2triton.graph.nodes import Node, Product, Reduce
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.rules.products import EXACT, LEAST, factor_dtype, input_precision


@dataclass(frozen=True)
class Dot:
    """A sum of products, each of one factor of rows and one of columns."""

    pairs: tuple[tuple[Node, Node], ...]
    left: Tile
    right: Tile
    dtype: np.dtype  # of the factors
    accumulated: np.dtype

    @property
    def factors(self) -> tuple[Node, ...]:
        return tuple(factor for pair in self.pairs for factor in pair)

    @property
    def tile(self) -> Tile:
        return self.left[0], self.right[1]


def dot_of(node: Reduce, plan: Plan, spell: Spelling) -> Dot | None:
    """The sum as dots; None if it has to be made term by term."""
    terms = [operand for operand in node.operands if isinstance(operand, Product)]
    if plan.form is not Form.DOT or len(terms) < len(node.operands):
        return None
    summed = spell.tile(frozenset(node.over))
    tile = spell.tile(node.axes)
    dtype = factor_dtype(node.eqn)
    if len(summed) != 1 or len(tile) != 2 or dtype is None:
        return None
    (along,), (row, column) = summed, tile
    pairs = []
    for term in terms:
        one, other = term.operands
        if _is_of(row, one) and not _is_of(row, other):
            pairs.append((one, other))
        elif _is_of(row, other) and not _is_of(row, one):
            pairs.append((other, one))
        else:
            return None
        if _is_of(column, pairs[-1][0]) or not _is_of(column, pairs[-1][1]):
            return None
    wide = np.dtype(np.int32) if dtype == np.int8 else np.promote_types(dtype, np.float32)
    accumulated = np.dtype(np.float32) if dtype.itemsize == 2 else wide
    return Dot(tuple(pairs), (row, along), (along, column), dtype, accumulated)


def _is_of(axis: Axis, node: Node) -> bool:
    return axis in node.axes


def precision_of(node: Reduce, dot: Dot, plan: Plan) -> str:
    """The keyword that says how exactly f32 is multiplied."""
    if dot.dtype != np.float32:
        return ""
    return f", input_precision='{input_precision(node.eqn, plan.policy.target)}'"


def in_blocks(plan: Plan, spell: Spelling, tile: Tile, dtype: np.dtype, values: str = "") -> str | None:
    """A tile of rows and columns, of zeros or of these values, that has the layout of a product.

    Each thread then has a block of neighbours, whose rows and columns it reads once; Triton's usual layout gives it
    elements of many rows. Adding a product of zeros is what makes it so.
    """
    if plan.form is not Form.OUTER or len(tile) != 2 or dtype != np.float32:
        return None
    rows, columns = (spell.planned[axis].block for axis in tile)
    if min(rows, columns) < LEAST:
        return None
    zeros = f"tl.zeros(({rows}, {LEAST}), tl.float32), tl.zeros(({LEAST}, {columns}), tl.float32)"
    return f"tl.dot({zeros}, {f'{values}, ' if values else ''}input_precision='{EXACT}')"
