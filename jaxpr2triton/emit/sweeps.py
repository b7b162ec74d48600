"""Writes what is swept: running sums, places in an order, and what an associative function makes of elements."""

from __future__ import annotations

from jaxpr2triton.emit.reductions import Reductions
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.graph.nodes import Swept
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.index import of_axis
from jaxpr2triton.ir.scanned import only_valid, scanned_p
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep


class Sweeps(Reductions):
    """The statements of what varies along an axis of lanes, and needs all of them."""

    def _sweep(self, node: Swept, scope: Scope) -> None:
        """A running sum, or places in an order, all along one axis of a tile."""
        if node.eqn.primitive is scanned_p:
            self._scan(node, scope)
            return
        row: Sweep = TABLE[node.eqn.primitive.name]
        (operand,) = node.operands
        tile, dtype = self.spell.tile(node.axes), working_dtype(operand.dtype)
        self.helpers |= dict.fromkeys(with_callees(row.helper(dtype)))
        value = self.narrow.rounded(operand, self._whole(operand, scope, tile, operand.dtype))
        neutral, ragged = row.neutral(dtype, node.eqn.params), frozenset(self.spell.ragged(frozenset(node.over)))
        mask = self.masks.of(ragged, (), tile, scope) if neutral is not None and ragged else None
        if mask:
            value = expr("tl.where({}, {}, {})", mask, value, constant(neutral, operand.dtype))
        order = tuple(tile.index(axis) for axis in (*(a for a in tile if a is not node.axis), node.axis))
        turned = row.last and order != tuple(range(len(tile)))
        value = expr("tl.permute({}, {})", value, order) if turned else value
        lane = self.spell.index(of_axis(node.axis), tuple(tile[n] for n in order))
        whole = expr(row.write(dtype, node.eqn.params), value, axis=tile.index(node.axis), lane=lane)
        whole = expr("tl.permute({}, {})", whole, tuple(map(order.index, range(len(tile))))) if turned else whole
        self._assign(node, scope, whole, self.wish[node], node.eqn)

    def _scan(self, node: Swept, scope: Scope) -> None:
        """One part of what an associative function makes of all elements up to each; others get theirs of the same."""
        combine, output, reverse = (node.eqn.params[key] for key in ("combine", "output", "reverse"))
        tile = self.spell.tile(node.axes)
        key = combine, node.operands, node.axis, reverse
        known = next((each.scans[key] for each in scope.chain() if key in each.scans), None)
        if known is None:
            parts = [self.narrow.rounded(each, self._whole(each, scope, tile, each.dtype)) for each in node.operands]
            ragged = frozenset(self.spell.ragged(frozenset(node.over)))
            if mask := self.masks.of(ragged, (), tile, scope) if ragged and reverse else None:  # lanes that come first
                combine = only_valid(combine)
                parts.append(expr("tl.full({}, 1, tl.int1) & {}", self.spell.shape(tile), mask))
            function, callees = self.functions.of(combine)
            self.helpers |= dict.fromkeys(each for callee in callees for each in with_callees(callee))
            row: Sweep = TABLE["scanned"]
            write = row.write(node.dtype, node.eqn.params)
            both = tuple(parts) if len(parts) > 1 else parts[0]
            whole = expr(write, both, axis=tile.index(node.axis), function=function)
            if len(parts) == 1:
                self._assign(node, scope, whole, self.wish[node], node.eqn)
                return
            known = scope.scans[key] = self._named("scanned", whole, scope, node.eqn)
        self._assign(node, scope, expr("{}[{}]", known, output), self.wish[node], node.eqn)
