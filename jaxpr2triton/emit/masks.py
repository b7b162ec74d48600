"""Which lanes lie inside of the arrays: conditions in words, with a variable for what several values ask.

    row_ok = row < 100
    inside = part * 16 + row < 1000
    x = tl.load(x_ptr + part * 16 + row, mask=row_ok & inside, other=0.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.scope import Line, Scope
from jaxpr2triton.emit.text import Spelling, Tile, conjunction, suffix
from jaxpr2triton.ir.index import Axis, Condition, computed_in


class Masks:
    """The masks of one kernel; `asked` says how many values have each condition."""

    def __init__(self, spell: Spelling, names: Names, asked: Mapping[Condition, int]) -> None:
        self._spell, self._names, self._asked = spell, names, asked

    def of(self, axes: frozenset[Axis], conditions: Sequence[Condition], tile: Tile, scope: Scope) -> str | None:
        """What holds in the lanes that are inside of these axes, and where the conditions hold; None if all are."""
        parts = []
        for axis in self._spell.ragged(axes):
            self._check_range(axis, scope)
            parts.append(self._spell.in_range(axis, tile))
        for condition in conditions:
            parts.extend(self.condition(condition, tile, scope))
        return conjunction(parts) if parts else None

    def condition(self, condition: Condition, tile: Tile, scope: Scope) -> list[str]:
        """The sides of a condition; or a variable, `inside = part * 16 + row < 1000`, if several values have it."""
        if self._asked[condition] < 2 or any(computed_in(condition.index)):
            return self._spell.condition(condition, tile)
        axes = condition.index.axes
        own = self._spell.tile(axes)
        home = next(s for s in scope.chain() if s.axis in axes or s.parent is None)
        if condition not in home.named:
            home.named[condition] = name = self._names.new("inside", home.depth)
            axis_lines = [n for n, line in enumerate(home.lines) if any(_defines(line, axis.name) for axis in axes)]
            text = conjunction(self._spell.condition(condition, own))
            home.lines.insert(1 + max(axis_lines, default=-1), f"{name} = {text}")
        return [home.named[condition] + suffix(own, tile)]

    def _check_range(self, axis: Axis, scope: Scope) -> None:
        """Define `row_ok = row < 100`, once, where `row` is defined."""
        home = next(s for s in scope.chain() if s.axis == axis or s.parent is None)
        if axis not in home.checked:
            home.checked.add(axis)
            position = 1 + max(n for n, line in enumerate(home.lines) if _defines(line, axis.name))
            home.lines.insert(position, f"{axis.name}_ok = {axis.name} < {axis.size}")


def _defines(line: Line, name: str) -> bool:
    return isinstance(line, str) and line.startswith(f"{name} = ")
