"""How indices, masks and broadcasts are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxpr2triton.emit.widths import WORD, Numbers, Widths, fits
from jaxpr2triton.ir.index import (
    Atom,
    Axis,
    Condition,
    Dynamic,
    Index,
    Quotient,
    Remainder,
    quotient_text,
    shift,
    sum_text,
)
from jaxpr2triton.ir.plan import Plan
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
    """Writes indices for one plan, each of its parts in as many bits as it may need."""

    def __init__(self, plan: Plan, computed: Callable[[Dynamic, Tile], str], numbers: Numbers) -> None:
        self.planned = {p.axis: p for p in plan.axes}
        self.computed = computed
        self.order = [p.axis for p in plan.axes if p.is_tile]
        self.widths = Widths(plan, numbers)

    def tile(self, axes: frozenset[Axis]) -> Tile:
        return tuple(axis for axis in self.order if axis in axes)

    def shape(self, tile: Tile) -> str:
        sizes = [str(self.planned[axis].block) for axis in tile]
        return "(" + ", ".join(sizes) + ("," if len(sizes) == 1 else "") + ")"

    def index(self, index: Index, tile: Tile) -> str:
        """The index as an expression over the axes' variables, shaped like `tile`."""
        return self._sum(index, lambda axis, bits: self._axis(axis, tile, bits), tile)

    def index_at_start(self, index: Index, tile: Tile, looped: Axis) -> str:
        """The same before a loop over one of its axes, at the places of the first step."""
        block = self.planned[looped].block
        start = f"tl.arange(0, {block}){self._axis_suffix(looped, tile)}" if block > 1 else "0"

        def text(axis: Axis, bits: int) -> str:
            if axis != looped:
                return self._axis(axis, tile, bits)
            return f"tl.cast({start}, tl.int{bits})" if bits > WORD else start

        return self._sum(index, text, tile)

    def _sum(self, index: Index, axis_text: Callable[[Axis, int], str], tile: Tile) -> str:
        bits = self.widths.of(index)

        def text(atom: Atom) -> str:
            if isinstance(atom, Axis):
                return axis_text(atom, bits[atom])
            if isinstance(atom, Dynamic):
                found = self.computed(atom, tile)
            else:
                found = quotient_text(atom, self._sum(atom.of, axis_text, tile))
            return f"tl.cast({found}, tl.int{bits[atom]})" if self.widths.own(atom) < bits[atom] else found

        return sum_text(index, text, _constant)

    def _axis(self, axis: Axis, tile: Tile, bits: int) -> str:
        """The step of a loop may be a number of the text, which has no `to`."""
        if self.widths.own(axis) < bits and not self.planned[axis].is_tile:
            return f"tl.cast({axis.name}, tl.int{bits})"
        return axis.name + f".to(tl.int{bits})" * (self.widths.own(axis) < bits) + self._axis_suffix(axis, tile)

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


def _constant(value: int) -> str:
    """Beyond 32 bits a number of the text would be one without a sign, and not be subtracted of a pointer."""
    return str(value) if fits(value, value, WORD) else f"tl.full((), {value}, tl.int64)"


def conjunction(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return " & ".join(in_parentheses(part) for part in parts)
