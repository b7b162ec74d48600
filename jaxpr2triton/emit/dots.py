"""Sums of products as Triton multiplies matrices.

    acc = tl.zeros((128, 128), tl.float32)
    for k_start in range(0, 4096, 64):
        …
        acc = tl.dot(x, w, acc, input_precision='ieee')

Both factors are cast to what the user multiplies: that is the rounding that JAX does.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.emit.text import Spelling, Tile
from jaxpr2triton.emit.turns import renames
from jaxpr2triton.graph.nodes import Graph, Load, Node, Product, Reduce, Take, operands_of
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.tree import Part, call, expr
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


def dots_of(graph: Graph, plan: Plan, spell: Spelling) -> dict[Node, Dot]:
    """The sums of a kernel that are made of blocks."""
    found = ((node, _dot_of(node, plan, spell)) for node in graph.of_kind(Reduce))
    return {node: dot for node, dot in found if dot is not None}


def read_for(spell: Spelling, dots: Mapping[Node, Dot], users: Mapping[Node, Sequence[object]]) -> frozenset[Node]:
    """The factors of 16 bits that are multiplied as they are read, and serve for nothing else; by any names."""
    terms: dict[object, np.dtype] = {term: dot.dtype for node, dot in dots.items() for term in operands_of(node)}
    factors = {factor for dot in dots.values() for factor in dot.factors}
    found: set[Node] = set()
    for load in {origin for factor in factors if isinstance(origin := _origin(spell, factor), Load)}:
        named = [user for user in users[load] if isinstance(user, Take) and renames(spell, user)]
        serving = [user for each in (load, *named) for user in users[each] if user not in named]
        if all(terms.get(user) == load.dtype for user in serving):
            found |= {load, *named}
    return frozenset(found)


def _origin(spell: Spelling, factor: Node) -> Node:
    """What a factor is under other names."""
    return factor.source if isinstance(factor, Take) and renames(spell, factor) else factor


def _dot_of(node: Reduce, plan: Plan, spell: Spelling) -> Dot | None:
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
        if row in other.axes:
            one, other = other, one
        if [axis in each.axes for axis in (row, column) for each in (one, other)] != [True, False, False, True]:
            return None
        pairs.append((one, other))
    wide = np.dtype(np.int32) if dtype == np.int8 else np.promote_types(dtype, np.float32)
    accumulated = np.dtype(np.float32) if dtype.itemsize == 2 else wide
    return Dot(tuple(pairs), (row, along), (along, column), dtype, accumulated)


def keywords_of(node: Reduce, dot: Dot, plan: Plan) -> dict[str, Part]:
    """What says how exactly f32 is multiplied, or that a sum is not one of f32: Triton takes it for one."""
    if dot.dtype != np.float32:
        return {} if dot.accumulated == np.float32 else {"out_dtype": f"tl.{dot.accumulated}"}
    return {"input_precision": ast.Constant(input_precision(node.eqn, plan.policy.target))}


def in_blocks(
    plan: Plan, spell: Spelling, tile: Tile, dtype: np.dtype, values: ast.expr | None = None
) -> ast.expr | None:
    """A tile of rows and columns, of zeros or of these values, that has the layout of a product.

    Each thread then has a block of neighbours, whose rows and columns it reads once; Triton's usual layout gives it
    elements of many rows. Adding a product of zeros is what makes it so; of several where threads share the terms.
    """
    sizes = [spell.planned[axis].block for axis in tile]
    whole = len(tile) == sum(planned.is_tile for planned in plan.axes)
    if plan.form is not Form.OUTER or dtype != np.float32 or not whole or len(tile) not in (2, 3):
        return None
    *shared, rows, columns = sizes
    if min(rows, columns) < LEAST:
        return None
    zeros = [expr("tl.zeros({}, tl.float32)", (*shared, *each)) for each in ((rows, LEAST), (LEAST, columns))]
    return call("tl.dot", *zeros, *([values] if values else []), input_precision=ast.Constant(EXACT))
