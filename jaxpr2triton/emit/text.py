"""How indices, masks and broadcasts are written."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
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
    shift,
)
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.tree import LOAD, as_expr, expr, name, scaled

Tile = tuple[Axis, ...]  # the axes of a tile's dimensions, in order; () is a scalar


@dataclass(frozen=True)
class Written:
    """A value that has been written: a name, or an expression that is used once."""

    value: ast.expr
    tile: Tile
    bare: bool = False  # a constant without a dtype

    @property
    def name(self) -> str | None:
        """Of the variable that it is."""
        return self.value.id if isinstance(self.value, ast.Name) else None


NOTHING = Written(as_expr(None), ())  # of what is no value


def beside(value: ast.expr, tile: Tile, within: Tile) -> ast.expr:
    """`x[:, None]`: a tile as it broadcasts against a larger one."""
    if not tile or tile == within:
        return value
    places: list[ast.expr] = [ast.Slice() if axis in tile else ast.Constant(None) for axis in within]
    return ast.Subscript(value, ast.Tuple(places, LOAD), LOAD)


class Spelling:
    """Writes indices for one plan, each of its parts in as many bits as it may need."""

    def __init__(self, plan: Plan, computed: Callable[[Dynamic, Tile], ast.expr], numbers: Numbers) -> None:
        self.planned = {p.axis: p for p in plan.axes}
        self.computed = computed
        self.order = [p.axis for p in plan.axes if p.is_tile]
        self.widths = Widths(plan, numbers)

    def tile(self, axes: frozenset[Axis]) -> Tile:
        return tuple(axis for axis in self.order if axis in axes)

    def shape(self, tile: Tile) -> tuple[int, ...]:
        return tuple(self.planned[axis].block for axis in tile)

    def index(self, index: Index, tile: Tile) -> ast.expr:
        """The index as an expression over the axes' variables, shaped like `tile`."""
        return self._sum(index, lambda axis, bits: self._axis(axis, tile, bits), tile)

    def index_at_start(self, index: Index, tile: Tile, looped: Axis) -> ast.expr:
        """The same before a loop over one of its axes, at the places of the first step."""
        block = self.planned[looped].block
        start = self._along(looped, expr("tl.arange(0, {})", block), tile) if block > 1 else as_expr(0)
        return self.index_with(index, tile, looped, start)

    def index_with(self, index: Index, tile: Tile, looped: Axis, start: ast.expr) -> ast.expr:
        """The same, where the places along one axis are others."""

        def written(axis: Axis, bits: int) -> ast.expr:
            if axis != looped:
                return self._axis(axis, tile, bits)
            return _cast(start, bits) if bits > WORD else start

        return self._sum(index, written, tile)

    def _sum(self, index: Index, written: Callable[[Axis, int], ast.expr], tile: Tile) -> ast.expr:
        bits = self.widths.of(index)
        found: ast.expr | None = None
        for atom, factor in index.terms:
            value = self._atom(atom, bits[atom], written, tile)
            if found is None:
                found = scaled(value if factor > 0 else ast.UnaryOp(ast.USub(), value), abs(factor))
            else:
                found = ast.BinOp(found, ast.Add() if factor > 0 else ast.Sub(), scaled(value, abs(factor)))
        if found is None:
            return _constant(index.const)
        if not index.const:
            return found
        return ast.BinOp(found, ast.Add() if index.const > 0 else ast.Sub(), _constant(abs(index.const)))

    def _atom(self, atom: Atom, bits: int, written: Callable[[Axis, int], ast.expr], tile: Tile) -> ast.expr:
        if isinstance(atom, Axis):
            return written(atom, bits)
        if isinstance(atom, Dynamic):
            found = self.computed(atom, tile)
        else:
            sign = ast.FloorDiv() if isinstance(atom, Quotient) else ast.Mod()
            found = ast.BinOp(self._sum(atom.of, written, tile), sign, as_expr(atom.by))
        return _cast(found, bits) if self.widths.own(atom) < bits else found

    def _axis(self, axis: Axis, tile: Tile, bits: int) -> ast.expr:
        """The step of a loop may be a number of the text, which has no `to`."""
        found = name(axis.name)
        if self.widths.own(axis) < bits:
            if not self.planned[axis].is_tile:
                return _cast(found, bits)
            found = expr("{}.to({})", found, f"tl.int{bits}")
        return self._along(axis, found, tile)

    def _along(self, axis: Axis, value: ast.expr, tile: Tile) -> ast.expr:
        return beside(value, (axis,), tile) if self.planned[axis].is_tile else value

    def in_range(self, axis: Axis, tile: Tile) -> ast.expr:
        """Whether a lane lies within the axis, by the variable that `Masks` defines."""
        return self._along(axis, name(f"{axis.name}_ok"), tile)

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

    def condition(self, condition: Condition, tile: Tile) -> list[ast.expr]:
        """The sides of a condition that do not hold anyway."""
        low, high = condition.index.bounds
        if condition.high == condition.low + 1:
            return [self._equal(condition.index, condition.low, tile)]
        place = self.index(condition.index, tile)
        sides = []
        if low < condition.low:
            sides.append(expr("{} >= {}", place, condition.low))
        if high >= condition.high:
            sides.append(expr("{} < {}", place, condition.high))
        return sides

    def _equal(self, index: Index, value: int, tile: Tile) -> ast.expr:
        """`k == place`, not `k - place == 0`."""
        left = Index(0, tuple((atom, factor) for atom, factor in index.terms if factor > 0))
        right = Index(0, tuple((atom, -factor) for atom, factor in index.terms if factor < 0))
        if not right.terms:
            return expr("{} == {}", self.index(index, tile), value)
        rest = value - index.const
        if not left.terms:
            left, right, rest = right, left, -rest
        return expr("{} == {}", self.index(left, tile), self.index(shift(right, rest), tile))


def _cast(value: ast.expr, bits: int) -> ast.expr:
    return expr("tl.cast({}, {})", value, f"tl.int{bits}")


def _constant(value: int) -> ast.expr:
    """Beyond 32 bits a number of the text would be one without a sign, and not be subtracted of a pointer."""
    return as_expr(value) if fits(value, value, WORD) else expr("tl.full((), {}, tl.int64)", value)
