"""Writes what a kernel stores: tiles of its results, what it keeps for itself, and flags.

    tl.store(y_ptr + row, y, mask=row < 1000)
    tl.store(failed_ptr, True, mask=tl.reduce(wrong & (row < 1000), 0, _either))

A flag is only set: all programs that do so write the same, so that no order of theirs matters.
"""

from __future__ import annotations

from jaxpr2triton.emit.axes import first_programs
from jaxpr2triton.emit.folds import Folds
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import Accumulated, Node, Place, Store, axes_in
from jaxpr2triton.ir.index import ZERO, Guard, flatten, within
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.tree import all_hold, atomic, expr, store
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.rows import TABLE


class Stores(Folds):
    """How a value is stored at a place, in a scope where it is known."""

    def _store(self, node: Store, scope: Scope) -> None:
        buffer = self.buffers.outputs[node.output]
        if buffer.is_flag:
            self._set(buffer, node, scope)
        else:
            self._write(buffer, node.place, node.value, scope, node)

    def _write(self, buffer: Buffer, place: Place, node: Node, scope: Scope, result: Store | None = None) -> None:
        offset = flatten(place, buffer.shape)
        axes = offset.axes
        tile = self.spell.tile(axes)
        address = self._address(buffer, offset, tile, result in self.nearest)
        address = self._beside(result or node, address, tile)
        mask = self.masks.of(axes, within(place, buffer.shape), tile, scope)
        parts = [*([mask] if mask else []), *first_programs(self.plan.axes, axes, self.band)]
        value = self._operand(node, scope, tile)
        scope.lines.append(store(address, value, all_hold(parts) if parts else None))

    def _accumulate_at(
        self, buffer: Buffer, node: Accumulated, place: Place, guard: Guard, value: Node, scope: Scope
    ) -> None:
        """Each lane adds what it has, where it is, or compares: lanes that have the same place meet there."""
        offset = flatten(place, buffer.shape)
        axes = offset.axes | value.axes | frozenset(axes_in((), guard)) | frozenset(node.over)
        tile = self.spell.tile(axes)
        if first_programs(self.plan.axes, axes, self.band):
            raise CompilerBug(f"several programs of kernel {self.plan.name} would add the same")
        address = self._address(buffer, offset, tile)
        if tile and set(self.spell.tile(self._spread_along(offset))) != set(tile):  # many lanes have one address
            address = self._for_all(address, tile)
        mask = self.masks.of(axes, guard, tile, scope)
        scope.lines.append(atomic(node.op, address, self._operand(value, scope, tile), mask))

    def _set(self, buffer: Buffer, node: Store, scope: Scope) -> None:
        """One, where the value holds for some lane."""
        shape = self.stored[node.output].aval.shape
        axes = frozenset(axis for index in node.place for axis in index.axes)
        tile = self.spell.tile(axes)
        mask = self.masks.of(axes, within(node.place, shape), tile, scope)
        holds = self._whole(node.value, scope, tile, node.value.dtype)
        if mask is not None:
            holds = expr("{} & {}", holds, mask)
        row = TABLE["reduce_or"]
        for dim in reversed(range(len(tile))):
            self.helpers |= dict.fromkeys(with_callees(row.helper(node.value.dtype)))
            holds = expr(row.collapse(node.value.dtype), holds, axis=dim)
        scope.lines.append(store(self._address(buffer, ZERO, ()), constant(1, buffer.dtype), holds))
