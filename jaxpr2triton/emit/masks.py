"""Which lanes lie inside of the arrays: conditions in words, with a variable for what several values ask.

    row_ok = row < 100
    inside = part * 16 + row < 1000
    x = tl.load(x_ptr + part * 16 + row, mask=row_ok & inside, other=0.0)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.text import Spelling, Tile, beside
from jaxpr2triton.ir.index import Axis, Condition, computed_in
from jaxpr2triton.ir.tree import all_hold, assign, expr, name


class Masks:
    """The masks of one kernel; `asked` says how many values have each condition."""

    def __init__(self, spell: Spelling, names: Names, asked: Mapping[Condition, int]) -> None:
        self._spell, self._names, self._asked = spell, names, asked

    def of(self, axes: frozenset[Axis], conditions: Sequence[Condition], tile: Tile, scope: Scope) -> ast.expr | None:
        """What holds in the lanes that are inside of these axes, and where the conditions hold; None if all are."""
        parts = []
        for axis in self._spell.ragged(axes):
            self._check_range(axis, scope)
            parts.append(self._spell.in_range(axis, tile))
        for condition in conditions:
            parts.extend(self.condition(condition, tile, scope))
        return all_hold(parts) if parts else None

    def condition(self, condition: Condition, tile: Tile, scope: Scope) -> list[ast.expr]:
        """The sides of a condition; or a variable, `inside = part * 16 + row < 1000`, if several values have it."""
        if self._asked[condition] < 2 or any(computed_in(condition.index)):
            return self._spell.condition(condition, tile)
        axes = condition.index.axes
        own = self._spell.tile(axes)
        home = next(s for s in scope.chain() if s.axis in axes or s.parent is None)
        if condition not in home.named:
            home.named[condition] = self._names.new("inside", home.depth)
            holds = all_hold(self._spell.condition(condition, own))
            home.write_beside(axes, assign(home.named[condition], holds))
        return [beside(name(home.named[condition]), own, tile)]

    def _check_range(self, axis: Axis, scope: Scope) -> None:
        """Define `row_ok = row < 100`, once, where `row` is defined."""
        home = next(s for s in scope.chain() if s.axis == axis or s.parent is None)
        if axis not in home.checked:
            home.checked.add(axis)
            home.write_beside({axis}, assign(f"{axis.name}_ok", expr("{} < {}", name(axis.name), axis.size)))
