"""Writes what is combined along an axis: tiles with their lanes outside made neutral, products of blocks, places."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from jaxpr2triton.emit.dots import keywords_of
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.statements import Statements
from jaxpr2triton.emit.text import Tile
from jaxpr2triton.emit.widths import WORD
from jaxpr2triton.graph.nodes import Node, Reduce
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.graph.signs import has_no_sign
from jaxpr2triton.ir.dtypes import is_bool, triton_name, working_dtype
from jaxpr2triton.ir.index import Axis, Index, add, scale
from jaxpr2triton.ir.tree import assign, call, expr, name
from jaxpr2triton.rules.literals import as_tensor, constant
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE


class Reductions(Statements):
    """How the parts of a reduction are written, where its operands are known."""

    def _row(self, node: Reduce) -> Reduction:
        """Of its primitive; a contraction is a sum of products."""
        name = node.eqn.primitive.name
        row: Reduction = TABLE["reduce_sum" if name == "dot_general" else name]
        return row

    def _helped(self, node: Reduce) -> None:
        """Put the function that lanes are combined by before the kernel."""
        helper = self._row(node).helper(working_dtype(self._element(node)))
        if helper is not None:
            self.helpers[helper] = None

    def _element(self, node: Reduce) -> np.dtype:
        """The dtype that is compared or summed; booleans are compared as integers."""
        dtype = node.operands[0].dtype
        return np.dtype(np.int32) if is_bool(dtype) and self._row(node).indexed else dtype

    def _whole_tile(self, node: Reduce) -> Tile:
        return self.spell.tile(frozenset().union(*(o.axes for o in node.operands)) | frozenset(node.over))

    def _parts(self, node: Reduce, scope: Scope, only: Sequence[Node] = ()) -> tuple[list[ast.expr], Tile]:
        """The tiles to be reduced (value and place for argmax), neutral where lanes lie outside."""
        row, dtype = self._row(node), self._element(node)
        tile = self._whole_tile(node)
        parts: list[ast.expr] = []
        operands = only or node.operands
        at_once = not row.indexed and len({self._outside(node, operand) for operand in operands}) == 1
        for operand, position in zip(operands, node.positions):
            value = self._operand(operand, scope, tile)
            if self._get(operand, scope).bare:
                value = as_tensor(value, operand.dtype)
            if dtype != operand.dtype:
                value = expr("{}.to({})", value, triton_name(dtype))
            value = self.narrow.rounded(operand, value) if row.indexed else value
            value = value if at_once else self._neutralised(node, operand, value, tile, scope)
            piece = [value, self._place_tile(node, position, tile)] if row.indexed else [value]
            parts = self._combined(node, parts, piece, scope) if parts else piece
        return [self._neutralised(node, operands[0], parts[0], tile, scope)] if at_once else parts, tile

    def _dotted(self, node: Reduce, scope: Scope, before: ast.expr | None = None) -> ast.expr:
        """The products of all pairs of factors, added to what was there before."""
        dot = self.dots[node]
        total = [] if before is None else [before]
        for pair in dot.pairs:
            values = []
            for factor, wanted in zip(pair, (dot.left, dot.right)):
                tile = self.spell.tile(frozenset(wanted))
                value = self._whole(factor, scope, tile, dot.dtype)
                value = self._neutral_factor(node, factor, value, tile, scope)
                held = factor.dtype if factor in self.as_read else working_dtype(factor.dtype)
                value = value if held == dot.dtype else expr("{}.to({})", value, triton_name(dot.dtype))
                values.append(value if tile == wanted else expr("tl.trans({})", value))
            total = [call("tl.dot", *values, *total, **keywords_of(node, dot, self.plan))]
        return total[0]

    def _neutral_factor(self, node: Reduce, factor: Node, value: ast.expr, tile: Tile, scope: Scope) -> ast.expr:
        """Zero beyond the end of what is summed, in both factors: infinity times zero is none."""
        ragged = frozenset(self.spell.ragged(frozenset(node.over))) - self.zeros[factor]
        mask = self.masks.of(ragged, (), tile, scope) if ragged else None
        return expr("tl.where({}, {}, {})", mask, value, constant(0, factor.dtype)) if mask else value

    def _place_tile(self, node: Reduce, position: Index, tile: Tile) -> ast.expr:
        """The places of a tile's elements, in a type that holds them all until one is chosen."""
        place, dtype = self.spell.index(position, tile), self._place_dtype(node)
        if not position.axes:
            return self._full(place, tile, dtype) if tile else as_tensor(place, dtype)
        place = expr("tl.broadcast_to({}, {})", place, self.spell.shape(tile)) if tile else place
        return expr("{}.to({})", place, triton_name(dtype))

    def _place_dtype(self, node: Reduce) -> np.dtype:
        return np.dtype(f"int{max(WORD, *map(self.spell.widths.sum, node.positions))}")

    def _goes_on(self, node: Reduce, keys: Sequence[LoopKey]) -> bool:
        """Whether each lane of a loop goes through its places in order, so that of equal ones it has the first."""
        opened = [axis for key in keys for axis in key.opened]
        if len(opened) != 1 or keys[0].backwards:
            return False
        factors = {position.coefficient(opened[0]) or 0 for position in node.positions}
        apart = [add(position, scale(node.positions[0], -1)) for position in node.positions]
        consts = [each.const for each in apart]
        spread = max(consts) - min(consts)
        return not any(each.terms for each in apart) and spread < min(factors) * self.spell.planned[opened[0]].block

    def _first_places(self, node: Reduce, keys: Sequence[LoopKey], tile: Tile) -> ast.expr:
        """Where lanes begin to look: each with the first of its own places, or with none."""
        dtype = self._place_dtype(node)
        if not self._goes_on(node, keys):
            return self._full(int(np.iinfo(dtype).max), tile, dtype)
        first = min(node.positions, key=lambda position: position.const)
        return expr("{} + {}", self._full(0, tile, dtype), self.spell.index_at_start(first, tile, keys[0].opened[0]))

    def _joined(self, node: Reduce, keys: Sequence[LoopKey]) -> str:
        """How a step joins what it has found with what was found before."""
        if not self._row(node).indexed:
            return self._row(node).combine(working_dtype(self._element(node)))
        return self._followed(node, self._goes_on(node, keys))

    def _followed(self, node: Reduce, in_order: bool) -> str:
        """How two values with their places are joined, of which the second may be known to have the later one."""
        row = self._row(node)
        if row.follow is None or not in_order:
            self._helped(node)
            return row.combine(working_dtype(self._element(node)))
        self.helpers[row.follow] = None
        return f"{row.follow}({{0}}, {{1}}, {{2}}, {{3}})"

    def _combined(
        self, node: Reduce, one: Sequence[ast.expr], other: Sequence[ast.expr], scope: Scope
    ) -> list[ast.expr]:
        row, dtype = self._row(node), working_dtype(self._element(node))
        if not row.indexed:
            return [expr(row.combine(dtype), one[0], other[0])]
        names = [self.names.new(wish, scope.depth) for wish in ("chosen", "place")]  # both are read by the next one
        joined = self._followed(node, _is_in_order(node.positions))
        self._say(scope, assign(names, expr(joined, *one, *other)), node.eqn)
        return [*map(name, names)]

    def _neutralised(self, node: Reduce, operand: Node, value: ast.expr, tile: Tile, scope: Scope) -> ast.expr:
        identity = self._row(node).identity(working_dtype(self._element(node)))
        ragged, constant_along = self._outside(node, operand)
        if not ragged and not constant_along:
            return value
        mask = self.masks.of(ragged, (), tile, scope)
        if mask:
            value = expr("tl.where({}, {}, {})", mask, value, constant(identity, self._element(node)))
        if constant_along - ragged:
            value = expr("tl.broadcast_to({}, {})", value, self.spell.shape(tile))
        return value

    def _outside(self, node: Reduce, operand: Node) -> tuple[frozenset[Axis], frozenset[Axis]]:
        """The axes of a reduction beyond which an operand has to be made neutral, and those it does not vary along."""
        over = frozenset(axis for axis in node.over if self.spell.planned[axis].is_tile)
        identity = self._row(node).identity(working_dtype(self._element(node)))
        is_zero = not isinstance(identity, bool) and identity == 0
        ragged = frozenset(self.spell.ragged(over)) - (self.zeros[operand] & operand.axes if is_zero else frozenset())
        return ragged, over - operand.axes

    def _collapsed(self, node: Reduce, parts: Sequence[ast.expr], tile: Tile, scope: Scope) -> ast.expr:
        """The tile without the dimensions that are reduced."""
        row, dtype = self._row(node), working_dtype(self._element(node))
        template = row.collapse(dtype)
        over = [axis for axis in tile if axis in node.over]
        if self._goes_by_bits(node, tile):
            return self._of_bits(expr("{}.to(tl.int32, bitcast=True)", parts[0]), tile, scope)
        if over:
            self._helped(node)
        if len(over) == len(tile) > 1 and not row.indexed:  # each thread combines all of its own before lanes meet
            return expr(template, *parts, axis=None)
        for axis in reversed(over):
            whole = expr(template, *parts, axis=tile.index(axis))
            parts = [expr("{}[{}]", whole, n) for n in range(2)] if row.indexed else [whole]
            tile = tuple(other for other in tile if other is not axis)
        if row.indexed and node.dtype != self._place_dtype(node):
            return expr("{}.to({})", parts[-1], triton_name(node.dtype))
        return parts[-1]

    def _of_bits(self, bits: ast.expr, tile: Tile, scope: Scope) -> ast.expr:
        """In a loop each warp combines what rows of lanes have, so that warps meet once, not twice as Triton lets them.

        tl.max(bits)    →    tl.max(_in_each_warp(tl.max(bits, axis=1)))
        """
        lanes = self.plan.policy.target.warp_size
        blocks = [self.spell.planned[axis].block for axis in tile]
        if not scope.depth or self.plan.num_warps == 1 or blocks != [lanes, lanes]:
            return expr("tl.max({}).to(tl.float32, bitcast=True)", bits)
        self.helpers["_in_each_warp"] = None
        return expr("tl.max(_in_each_warp(tl.max({}, axis=1))).to(tl.float32, bitcast=True)", bits)

    def _goes_by_bits(self, node: Reduce, tile: Tile) -> bool:
        """Whether the largest of all lanes is that of integers, for which NVIDIA's warps have an instruction."""
        target, lanes = self.plan.policy.target, math.prod(self.spell.planned[axis].block for axis in tile)
        of_all = frozenset(tile) <= frozenset(node.over) and lanes >= target.warp_size
        is_largest = node.eqn.primitive.name == "reduce_max" and working_dtype(node.dtype) == np.float32
        return target.backend == "cuda" and of_all and is_largest and all(map(has_no_sign, node.operands))


def _is_in_order(positions: Sequence[Index]) -> bool:
    """Whether each of a step's places is behind those before it."""
    steps = [add(after, scale(before, -1)) for before, after in pairwise(positions)]
    return all(step.const > 0 and not step.terms for step in steps)
