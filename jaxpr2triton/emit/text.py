"""How indices, masks and broadcasts are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxpr2triton.ir.index import Axis, Condition, Dynamic, Index, Quotient, Remainder, index_text, shift
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.rules.base import in_parentheses

Tile = tuple[Axis, ...]  # the axes of a tile's dimensions, in order; () is a scalar


@dataclass(frozen=True)
class Written:
    """A value that has been written: a name, or an expression that is used once."""

    text: str
    tile: Tile
    bare: bool = False  # a constant without a dtype


def suffix(tile: Tile, within: Tile) -> str:
    """`[:, None]`: what makes a tile broadcast against a larger one."""
    if not tile or tile == within:
        return ""
    return "[" + ", ".join(":" if axis in tile else "None" for axis in within) + "]"


class Spelling:
    """Writes indices for one plan."""

    def __init__(self, planned: Sequence[PlannedAxis], computed: Callable[[Dynamic, Tile], str]) -> None:
        self.planned = {p.axis: p for p in planned}
        self.computed = computed
        self.order = [p.axis for p in planned if p.is_tile]

    def tile(self, axes: frozenset[Axis]) -> Tile:
        return tuple(axis for axis in self.order if axis in axes)

    def shape(self, tile: Tile) -> str:
        sizes = [str(self.planned[axis].block) for axis in tile]
        return "(" + ", ".join(sizes) + ("," if len(sizes) == 1 else "") + ")"

    def index(self, index: Index, tile: Tile) -> str:
        """The index as an expression over the axes' variables, shaped like `tile`."""
        return index_text(index, lambda atom: self._atom(atom, tile))

    def index_at_start(self, index: Index, tile: Tile, looped: Axis) -> str:
        """The same before a loop over one of its axes, at the places of the first step."""
        block = self.planned[looped].block
        start = f"tl.arange(0, {block}){self._axis_suffix(looped, tile)}" if block > 1 else "0"
        return index_text(index, lambda atom: start if atom == looped else self._atom(atom, tile))

    def _atom(self, atom: Axis | Dynamic, tile: Tile) -> str:
        return self.computed(atom, tile) if isinstance(atom, Dynamic) else atom.name + self._axis_suffix(atom, tile)

    def _axis_suffix(self, axis: Axis, tile: Tile) -> str:
        return suffix((axis,), tile) if self.planned[axis].is_tile else ""

    def in_range(self, axis: Axis, tile: Tile) -> str:
        """Whether a lane lies within the axis, by the variable that `range_checks` defines."""
        return f"{axis.name}_ok{self._axis_suffix(axis, tile)}"

    def ragged(self, axes: frozenset[Axis]) -> list[Axis]:
        return [axis for axis in self.order if axis in axes and self.planned[axis].ragged]

    def reach(self, index: Index) -> tuple[float, float]:
        """What an index lies between in all lanes, those beyond an axis too."""
        low = high = float(index.const)
        for atom, factor in index.terms:
            match atom:
                case Axis():
                    ends = (0.0, self.planned[atom].block * self.planned[atom].steps - 1.0)
                case Dynamic():
                    ends = (atom.low, atom.high) if atom.clamped else (-math.inf, math.inf)
                case Quotient():
                    first, last = (end / atom.by for end in self.reach(atom.of))
                    ends = (first if math.isinf(first) else math.floor(first), last)
                case Remainder():
                    ends = (0.0 if self.reach(atom.of)[0] >= 0 else 1.0 - atom.by, atom.by - 1.0)
            low, high = low + min(factor * end for end in ends), high + max(factor * end for end in ends)
        return low, high

    def condition(self, condition: Condition, tile: Tile) -> list[str]:
        """The sides of a condition that do not hold anyway."""
        low, high = condition.index.bounds
        if condition.high == condition.low + 1:
            return [self._equal(condition.index, condition.low, tile)]
        text = self.index(condition.index, tile)
        sides = []
        if low < condition.low:
            sides.append(f"{text} >= {condition.low}")
        if high >= condition.high:
            sides.append(f"{text} < {condition.high}")
        return sides

    def _equal(self, index: Index, value: int, tile: Tile) -> str:
        """`k == place`, not `k - place == 0`."""
        left = Index(0, tuple((atom, factor) for atom, factor in index.terms if factor > 0))
        right = Index(0, tuple((atom, -factor) for atom, factor in index.terms if factor < 0))
        if not right.terms:
            return f"{self.index(index, tile)} == {value}"
        rest = value - index.const
        if not left.terms:
            left, right, rest = right, left, -rest
        return f"{self.index(left, tile)} == {self.index(shift(right, rest), tile)}"


def conjunction(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return " & ".join(in_parentheses(part) for part in parts)
