"""Writes what a kernel stores: tiles of its results, what it keeps for itself, and flags.

    tl.store(y_ptr + row, y, mask=row < 1000)
    tl.store(failed_ptr, True, mask=tl.reduce(wrong & (row < 1000), 0, _either))

A flag is only set: all programs that do so write the same, so that no order of theirs matters.
"""

from __future__ import annotations

from jaxpr2triton.emit.axes import first_programs
from jaxpr2triton.emit.folds import Folds
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.text import conjunction
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import Accumulated, Node, Place, Store, axes_in
from jaxpr2triton.ir.index import Guard, flatten, within
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.rules.base import in_parentheses
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.rows import TABLE


class Stores(Folds):
    """How a value is stored at a place, in a scope where it is known."""

    def _store(self, store: Store, scope: Scope) -> None:
        buffer = self.buffers.outputs[store.output]
        if buffer.is_flag:
            self._set(buffer, store, scope)
        else:
            self._write(buffer, store.place, store.value, scope, store)

    def _write(self, buffer: Buffer, place: Place, node: Node, scope: Scope, store: Store | None = None) -> None:
        offset = flatten(place, buffer.shape)
        axes = offset.axes
        tile = self.spell.tile(axes)
        address = f"{buffer.name}_ptr" + " + unaligned" * (store in self.nearest)
        if offset.terms or offset.const:
            address += f" + {self.spell.index(offset, tile)}"
        address = self._beside(store or node, address, tile)
        mask = self.masks.of(axes, within(place, buffer.shape), tile, scope)
        parts = [*([mask] if mask else []), *first_programs(self.plan.axes, axes, self.band)]
        value = self._operand(node, scope, tile)
        mask = conjunction(parts) if parts else None
        end = "" if mask is None else f", mask={mask}"
        scope.lines.append(f"tl.store({address}, {value}{end})")

    def _accumulate_at(
        self, buffer: Buffer, node: Accumulated, place: Place, guard: Guard, value: Node, scope: Scope
    ) -> None:
        """Each lane adds what it has, where it is, or compares: lanes that have the same place meet there."""
        offset = flatten(place, buffer.shape)
        axes = offset.axes | value.axes | frozenset(axes_in((), guard)) | frozenset(node.over)
        tile = self.spell.tile(axes)
        if first_programs(self.plan.axes, axes, self.band):
            raise CompilerBug(f"several programs of kernel {self.plan.name} would add the same")
        address = f"{buffer.name}_ptr"
        if offset.terms or offset.const:
            address += f" + {self.spell.index(offset, tile)}"
        if tile and set(self.spell.tile(self._spread_along(offset))) != set(tile):  # many lanes have one address
            address += f" + tl.zeros({self.spell.shape(tile)}, tl.int32)"
        mask = self.masks.of(axes, guard, tile, scope)
        parts = [address, self._operand(value, scope, tile), *([f"mask={mask}"] if mask else []), 'sem="relaxed"']
        scope.lines.append(f"tl.atomic_{node.op}({', '.join(parts)}, scope=\"cta\")")

    def _set(self, buffer: Buffer, store: Store, scope: Scope) -> None:
        """One, where the value holds for some lane."""
        shape = self.stored[store.output].aval.shape
        axes = frozenset(axis for index in store.place for axis in index.axes)
        tile = self.spell.tile(axes)
        mask = self.masks.of(axes, within(store.place, shape), tile, scope)
        holds = self._whole(store.value, scope, tile, store.value.dtype)
        if mask is not None:
            holds = f"{in_parentheses(holds)} & {in_parentheses(mask)}"
        row = TABLE["reduce_or"]
        for dim in reversed(range(len(tile))):
            self.helpers |= dict.fromkeys(with_callees(row.helper(store.value.dtype)))
            holds = row.collapse(store.value.dtype).format(holds, axis=dim)
        scope.lines.append(f"tl.store({buffer.name}_ptr, {constant(1, buffer.dtype)}, mask={holds})")
