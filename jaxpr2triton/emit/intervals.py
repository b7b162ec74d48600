"""What the integers of a kernel's text lie between, and in how many bits they are computed.

tl.program_id(0) * 64 + tl.arange(0, 64)      →      0 … 64 * programs - 1, of 32 bits
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.emit.walks import function_of
from jaxpr2triton.emit.widths import WORD, fits


@dataclass(frozen=True)
class Interval:
    """The least and the largest value; the bits, or none of a number of the text, which takes those beside it."""

    low: float
    high: float
    bits: int = 0

    @property
    def fits(self) -> bool:
        return not self.bits or fits(self.low, self.high, self.bits)


@dataclass(frozen=True)
class Unknown:
    """Anything else; `left` if it is an integer that may have left its bits."""

    left: bool = False


Value = Interval | Unknown | tuple["Value", ...]
UNKNOWN, LEFT = Unknown(), Unknown(left=True)
INTEGERS = {f"int{bits}": bits for bits in (1, 8, 16, 32, 64)}  # Triton's types
SAME = {"broadcast_to", "reshape", "permute", "trans", "max_contiguous", "multiple_of", "gather", "min", "max"}


@dataclass(frozen=True)
class Reader:
    """Reads expressions; `left` says what one is that leaves its bits, `unknown` what one of which nothing is known."""

    known: Mapping[str, Value]  # of the variables
    grid: Sequence[int]
    bits: int  # of numbers that are brought into a range
    left: Callable[[ast.expr], Value]
    unknown: Callable[[ast.expr, Unknown], Value]

    def value(self, node: ast.expr) -> Value:
        found: Value = UNKNOWN
        match node:
            case ast.Constant(int(number)) if not isinstance(number, bool):
                return Interval(number, number)
            case ast.Name(id=name):
                found = self.known.get(name, UNKNOWN)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._combined(node, Interval(0, 0), self.value(operand), ast.Sub())
            case ast.BinOp(left=left, op=op, right=right):
                return self._combined(node, self.value(left), self.value(right), op)
            case ast.Tuple(elts=parts):
                return tuple(map(self.value, parts))
            case ast.Subscript(value=value, slice=places):
                found = _part(self.value(value), places)
            case ast.Call():
                found = self._called(node)
        return self.unknown(node, found) if isinstance(found, Unknown) else found

    def _combined(self, node: ast.expr, one: Value, other: Value, op: ast.operator) -> Value:
        if not isinstance(one, Interval) or not isinstance(other, Interval):
            return self.unknown(node, LEFT if LEFT in (one, other) else UNKNOWN)
        found = _arithmetic(one, other, op)
        if found is None:
            return self.unknown(node, UNKNOWN)
        parts = (Interval(each.low, each.high, each.bits or found.bits) for each in (one, other, found))
        return found if all(part.fits for part in parts) else self.left(node)

    def _called(self, call: ast.Call) -> Value:
        name = function_of(call)
        match name, call.args:
            case "program_id", [ast.Constant(int(dim))]:
                return Interval(0, self.grid[dim] - 1, WORD)
            case "num_programs", [ast.Constant(int(dim))]:
                return Interval(self.grid[dim], self.grid[dim], WORD)
            case "arange", [ast.Constant(int(start)), ast.Constant(int(stop))]:
                return Interval(start, stop - 1, WORD)
            case "swizzle2d", [_, _, ast.Constant(int(rows)), ast.Constant(int(columns)), _]:
                return Interval(0, rows - 1, WORD), Interval(0, columns - 1, WORD)
            case "zeros", [_, kind]:
                return self._cast(call, Interval(0, 0), kind)
            case "full", [_, value, kind]:
                return self._cast(call, self.value(value), kind)
            case "cast", [value, kind]:
                return self._cast(call, self.value(value), kind)
            case "to", [kind] if isinstance(call.func, ast.Attribute) and not call.keywords:
                return self._cast(call, self.value(call.func.value), kind)
            case "minimum" | "maximum", [one, other]:
                return self._limited(self.value(one), self.value(other), name)
            case "where", [_, one, other]:
                return hull(self.value(one), self.value(other))
            case "join", [one, other]:
                return hull(self.value(one), self.value(other))
            case "split", [value]:
                return self.value(value), self.value(value)
            case _, [value, *_] if name in SAME:
                return self.value(value)
        return UNKNOWN

    def _cast(self, call: ast.expr, value: Value, kind: ast.expr) -> Value:
        bits = INTEGERS.get(kind.attr) if isinstance(kind, ast.Attribute) else None
        if not isinstance(value, Interval) or bits is None:
            return UNKNOWN
        found = Interval(value.low, value.high, bits)
        return found if found.fits else self.left(call)

    def _limited(self, one: Value, other: Value, name: str) -> Value:
        """What a number is brought into, whatever it was."""
        first, second = (
            each if isinstance(each, Interval) else Interval(-math.inf, math.inf, self.bits) for each in (one, other)
        )
        chosen = min if name == "minimum" else max
        bits = max(first.bits, second.bits)
        return Interval(chosen(first.low, second.low), chosen(first.high, second.high), bits)


def hull(one: Value, other: Value) -> Value:
    if isinstance(one, Interval) and isinstance(other, Interval):
        return Interval(min(one.low, other.low), max(one.high, other.high), max(one.bits, other.bits))
    return one if one == other else UNKNOWN


def _part(value: Value, places: ast.expr) -> Value:
    """What is taken out of a tuple; of a tile the same numbers, with more dimensions."""
    if not isinstance(value, tuple):
        return value
    match places:
        case ast.Constant(int(place)):
            return value[place]
        case ast.Slice(lower=ast.Constant(int(start)), upper=None, step=None):
            return value[start:]
    found = value[0]
    for each in value[1:]:
        found = hull(found, each)
    return found


def _arithmetic(one: Interval, other: Interval, op: ast.operator) -> Interval | None:
    """Quotients and remainders are those of C, by numbers above zero."""
    bits = max(one.bits, other.bits)
    match op:
        case ast.Add():
            return Interval(one.low + other.low, one.high + other.high, bits)
        case ast.Sub():
            return Interval(one.low - other.high, one.high - other.low, bits)
        case ast.Mult():
            ends = list(itertools.product((one.low, one.high), (other.low, other.high)))
            products = [0 if 0 in pair else pair[0] * pair[1] for pair in ends]  # and not infinity times zero
            return Interval(min(products), max(products), bits)
        case ast.FloorDiv() if other.low > 0 and math.isfinite(one.high - one.low):
            quotients = [int(end / by) for end in (one.low, one.high) for by in (other.low, other.high)]
            return Interval(min(quotients), max(quotients), bits)
        case ast.Mod() if other.low > 0:
            last = other.high - 1
            return Interval(max(one.low, -last) if one.low < 0 else 0, min(one.high, last) if one.high > 0 else 0, bits)
    return None
