"""Index expressions: where a value is read, as a function of the kernel's axes.

An `Index` is an integer `const + Σ coef · atom`; an atom is an axis, a quotient or a remainder. The constructors keep
one form, so that equal places are equal values: `f // 4 * 4 + f % 4` is `f`, and `(4 * i + j) // 4` is `i` when
`0 <= j < 4`. Quotients round down; an index is meant to be non-negative wherever its guard holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from jaxpr2triton.errors import CompilerBug

Value = TypeVar("Value", bound=type)


def _hashed_once(kind: Value) -> Value:
    """The same class, whose values remember their hash: places are looked up all the time."""
    compute: Any = kind.__hash__

    def remembered(self: Any) -> int:
        try:
            known: int = self._hash
        except AttributeError:
            known = compute(self)
            object.__setattr__(self, "_hash", known)
        return known

    def without_hash(self: Any) -> dict[str, Any]:
        """What is pickled: another process hashes names in another way."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    setattr(kind, "__hash__", remembered)  # noqa: B010  # a type checker has them as they are
    setattr(kind, "__getstate__", without_hash)  # noqa: B010
    return kind


@_hashed_once
@dataclass(frozen=True)
class Axis:
    """A range 0 … size-1 that a kernel iterates over."""

    name: str
    size: int

    @cached_property
    def index(self) -> Index:
        return ZERO if self.size == 1 else Index(0, ((self, 1),))

    def __str__(self) -> str:
        return self.name


@_hashed_once
@dataclass(frozen=True)
class Quotient:
    of: Index
    by: int

    def __str__(self) -> str:
        return f"({self.of})//{self.by}"


@_hashed_once
@dataclass(frozen=True)
class Remainder:
    of: Index
    by: int

    def __str__(self) -> str:
        return f"({self.of})%{self.by}"


@_hashed_once
@dataclass(frozen=True)
class Dynamic:
    """A number that the kernel computes; `key` says which, `axes` along which axes it may vary."""

    key: Hashable
    axes: frozenset[Axis]
    low: int
    high: int
    clamped: bool  # the computed number may lie outside of low … high, and is brought back
    signed: str = ""  # the dtype to go on in, if it is computed in one without a sign

    def __str__(self) -> str:
        return "computed"


Atom = Axis | Quotient | Remainder | Dynamic


@_hashed_once
@dataclass(frozen=True, init=False)
class Index:
    const: int
    terms: tuple[tuple[Atom, int], ...]  # coefficients are never zero

    def __init__(self, const: int, terms: tuple[tuple[Atom, int], ...]) -> None:
        own = self.__dict__  # in half the time that frozen values take to be made by themselves
        own["const"], own["terms"] = const, terms

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value, both included."""
        low = high = self.const
        for atom, coef in self.terms:
            first, last = _atom_bounds(atom)
            low += min(coef * first, coef * last)
            high += max(coef * first, coef * last)
        return low, high

    @cached_property
    def axes(self) -> frozenset[Axis]:
        found: set[Axis] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, Axis) else atom.axes if isinstance(atom, Dynamic) else atom.of.axes
        return frozenset(found)

    @cached_property
    def own_axes(self) -> frozenset[Axis]:
        """Those that it is written with; not those that the numbers in it may vary along."""
        found: set[Axis] = set()
        for atom, _ in self.terms:
            if not isinstance(atom, Dynamic):
                found |= {atom} if isinstance(atom, Axis) else atom.of.own_axes
        return frozenset(found)

    def coefficient(self, axis: Axis) -> int | None:
        """How far the value moves when `axis` advances by one; None where that is not one number."""
        for atom, _ in self.terms:
            if not isinstance(atom, Axis) and axis in (atom.axes if isinstance(atom, Dynamic) else atom.of.axes):
                return None
        return dict(self.terms).get(axis, 0)

    def __str__(self) -> str:
        return index_text(self, str)


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Axis):
        return 0, max(atom.size - 1, 0)
    if isinstance(atom, Dynamic):
        return atom.low, atom.high
    low, high = atom.of.bounds
    if isinstance(atom, Quotient):
        return low // atom.by, high // atom.by
    return 0, atom.by - 1


def constant(value: int) -> Index:
    return Index(value, ())


ZERO = constant(0)


def of_axis(axis: Axis) -> Index:
    return axis.index


def plain_axis(index: Index) -> Axis | None:
    """The axis that an index is, if it is nothing but that."""
    if index.const or len(index.terms) != 1:
        return None
    ((atom, coef),) = index.terms
    return atom if coef == 1 and isinstance(atom, Axis) else None


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    return (-abs(term[1]), str(term[0]))


def add(*parts: Index) -> Index:
    """The sum, with `d * (x // d) + x % d` put together again, and so `d * ((a + x // d) % m) + x % d`."""
    coefs: dict[Atom, int] = {}
    const = 0
    for part in parts:
        const += part.const
        for atom, coef in part.terms:
            coefs[atom] = coefs.get(atom, 0) + coef
    coefs = {atom: coef for atom, coef in coefs.items() if coef}
    for atom, coef in coefs.items():
        if isinstance(atom, Remainder) and (found := _together(atom, coef, coefs)) is not None:
            partner, joined = found
            rest = {a: c for a, c in coefs.items() if a not in (atom, partner)}
            return add(Index(const, tuple(rest.items())), scale(joined, coef))
    return Index(const, tuple(sorted(coefs.items(), key=_order)))


def _together(atom: Remainder, coef: int, coefs: Mapping[Atom, int]) -> tuple[Atom, Index] | None:
    """The term beside a remainder that it belongs to, and what the two are."""
    quotient = divide(atom.of, atom.by)
    if len(quotient.terms) != 1 or quotient.const or quotient.terms[0][1] != 1:
        return None
    (term,) = quotient.terms
    if coefs.get(term[0]) == coef * atom.by:
        return term[0], atom.of
    for other, times in coefs.items():
        if isinstance(other, Remainder) and times == coef * atom.by and term in other.of.terms:
            beside = Index(other.of.const, tuple(each for each in other.of.terms if each != term))
            return other, modulo(add(scale(beside, atom.by), atom.of), atom.by * other.by)
    return None


def scale(index: Index, factor: int) -> Index:
    if factor == 0:
        return ZERO
    return Index(index.const * factor, tuple((atom, coef * factor) for atom, coef in index.terms))


def shift(index: Index, by: int) -> Index:
    return Index(index.const + by, index.terms)


def _split(index: Index, by: int) -> tuple[Index, Index]:
    """index = by * whole + rest, with as much in `whole` as can be while `rest` is never negative.

    Triton's quotients and remainders of negative numbers are those of C, not of Python.
    """
    parts = [(atom, coef - coef % (by if coef > 0 else -by)) for atom, coef in index.terms]  # of 3 * k, by 2: 2 * k
    whole = [(atom, coef // by) for atom, coef in parts if coef]
    left = ((atom, coef - part) for (atom, coef), (_, part) in zip(index.terms, parts))
    rest = Index(index.const % by, tuple((atom, coef) for atom, coef in left if coef))
    below = max(0, -(rest.bounds[0] // by))
    return Index(index.const // by - below, tuple(whole)), shift(rest, below * by)


def _common_factor(index: Index, by: int) -> int:
    return math.gcd(by, *(coef for _, coef in index.terms))


def _coarse(index: Index, by: int) -> tuple[int, Index, Index] | None:
    """index = unit * coarse + fine, where 0 <= fine < unit and the unit divides `by`, if there is such a unit."""
    for unit in sorted({math.gcd(by, coef) for _, coef in index.terms} - {1, by}, reverse=True):
        fine = Index(index.const % unit, tuple((atom, coef) for atom, coef in index.terms if coef % unit))
        low, high = fine.bounds
        if low >= 0 and high < unit:
            coarse = tuple((atom, coef // unit) for atom, coef in index.terms if coef % unit == 0)
            return unit, Index(index.const // unit, coarse), fine
    return None


def divide(index: Index, by: int) -> Index:
    """index // by, rounded down."""
    low, high = index.bounds
    if by == 1:
        return index
    if low // by == high // by:
        return constant(low // by)
    whole, rest = _split(index, by)
    low, high = rest.bounds
    if low >= 0 and high < by:
        return add(whole)
    if coarse := _coarse(rest, by):
        return add(whole, divide(coarse[1], by // coarse[0]))
    factor = _common_factor(rest, by)
    reduced = Index(rest.const // factor, tuple((atom, coef // factor) for atom, coef in rest.terms))
    return add(whole, _quotient(reduced, by // factor))


def _quotient(index: Index, by: int) -> Index:
    if by == 1:
        return index
    if len(index.terms) == 1 and not index.const and index.terms[0][1] == 1:
        atom = index.terms[0][0]
        if isinstance(atom, Quotient):
            return divide(atom.of, atom.by * by)
        if isinstance(atom, Remainder) and atom.by % by == 0:
            return modulo(divide(atom.of, by), atom.by // by)
    return Index(0, ((Quotient(add(index), by), 1),))


def modulo(index: Index, by: int) -> Index:
    """index % by, never negative."""
    if by == 1:
        return ZERO
    _, rest = _split(index, by)
    low, high = rest.bounds
    if low >= 0 and high < by:
        return add(rest)
    factor = _common_factor(rest, by)
    if factor > 1 and rest.const % factor == 0:
        reduced = Index(rest.const // factor, tuple((atom, coef // factor) for atom, coef in rest.terms))
        return scale(modulo(reduced, by // factor), factor)
    if coarse := _coarse(rest, by):
        unit, outer, fine = coarse
        return add(scale(modulo(outer, by // unit), unit), fine)
    if len(rest.terms) == 1 and not rest.const and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Remainder) and atom.by % by == 0:
            return modulo(atom.of, by)
    return Index(0, ((Remainder(add(rest), by), 1),))


def substitute(index: Index, mapping: Mapping[Axis, Index]) -> Index:
    """The same place, with axes replaced by expressions of other axes."""
    if not any(axis in mapping for axis in index.axes):
        return index
    parts = [constant(index.const)]
    for atom, coef in index.terms:
        if isinstance(atom, Axis):
            part = mapping.get(atom, of_axis(atom))
        elif isinstance(atom, Dynamic):
            part = Index(0, ((atom, 1),))
        elif isinstance(atom, Quotient):
            part = divide(substitute(atom.of, mapping), atom.by)
        else:
            part = modulo(substitute(atom.of, mapping), atom.by)
        parts.append(scale(part, coef))
    return add(*parts)


def flatten(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major position of an element of an array of that shape."""
    flat = ZERO
    for index, size in zip(indices, shape, strict=True):
        flat = add(scale(flat, size), index)
    return flat


def unflatten(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The inverse of `flatten`."""
    indices = []
    stride = math.prod(shape)
    for position, size in enumerate(shape):
        stride //= max(size, 1)
        quotient = divide(flat, max(stride, 1))
        indices.append(quotient if position == 0 else modulo(quotient, max(size, 1)))
    if shape and shape[0] == 1:
        indices[0] = ZERO
    return tuple(indices)


def index_text(index: Index, axis_text: Callable[[Axis | Dynamic], str]) -> str:
    """The expression as source text; the caller says how each axis, and each computed number, is written."""

    def text(atom: Atom) -> str:
        if isinstance(atom, Axis | Dynamic):
            return axis_text(atom)
        return quotient_text(atom, index_text(atom.of, axis_text))

    return sum_text(index, text)


def sum_text(index: Index, atom_text: Callable[[Atom], str], const_text: Callable[[int], str] = str) -> str:
    """The same, of atoms and a constant as the caller writes them."""
    pieces: list[str] = []
    for atom, coef in index.terms:
        text = atom_text(atom)
        magnitude = abs(coef)
        if magnitude != 1:
            text = f"{text} * {magnitude}"
        if not pieces:
            pieces.append(text if coef > 0 else f"-{text}")
        else:
            pieces.append(f"+ {text}" if coef > 0 else f"- {text}")
    if index.const or not pieces:
        if not pieces:
            pieces.append(const_text(index.const))
        else:
            pieces.append(f"{'+' if index.const > 0 else '-'} {const_text(abs(index.const))}")
    return " ".join(pieces)


def quotient_text(atom: Quotient | Remainder, inner: str) -> str:
    if len(atom.of.terms) + bool(atom.of.const) > 1 or atom.of.terms and atom.of.terms[0][1] != 1:
        inner = f"({inner})"
    symbol = "//" if isinstance(atom, Quotient) else "%"
    return f"({inner} {symbol} {atom.by})"


def computed_in(index: Index) -> Iterator[Dynamic]:
    """The computed numbers that an index is made of."""
    for atom, _ in index.terms:
        if isinstance(atom, Dynamic):
            yield atom
        elif not isinstance(atom, Axis):
            yield from computed_in(atom.of)


@_hashed_once
@dataclass(frozen=True, init=False)
class Condition:
    """low <= index < high."""

    index: Index
    low: int
    high: int

    def __init__(self, index: Index, low: int, high: int) -> None:
        own = self.__dict__  # as of `Index`
        own["index"], own["low"], own["high"] = index, low, high

    @cached_property
    def only_value(self) -> tuple[Atom, int] | None:
        """What it is about, an axis or a quotient, and its one value, if there is one of each."""
        match self.index.terms:
            case (((Axis() | Quotient() | Remainder()) as atom, factor),):
                low, high = self.low - self.index.const, self.high - 1 - self.index.const
                first, last = (-(-low // factor), high // factor) if factor > 0 else (-(high // -factor), low // factor)
                least, most = _atom_bounds(atom)
                first, last = max(first, least), min(last, most)
                return (atom, first) if first == last else None
        return None

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


Guard = tuple[Condition, ...]  # all of them hold


def decide(condition: Condition) -> bool | None:
    """Whether the condition always (True) or never (False) holds, by the sizes of the axes alone."""
    low, high = condition.index.bounds
    if condition.low <= low and high < condition.high:
        return True
    if high < condition.low or condition.high <= low:
        return False
    return None


def conjoin(guard: Guard, more: Sequence[Condition]) -> Guard | None:
    """The conditions together, without those that always hold; None if they can never all hold.

    What is there already stays the object that it is.
    """
    merged: dict[Index, Condition] = {}
    for given in more:
        match decide(given):
            case False:
                return None
            case True:
                continue
        merged = merged or {each.index: each for each in guard}
        # without its constant the index is the same for all shifted copies of a place
        offset = given.index.const
        condition = Condition(shift(given.index, -offset), given.low - offset, given.high - offset) if offset else given
        known = merged.get(condition.index, condition)
        low, high = max(known.low, condition.low), min(known.high, condition.high)
        if low >= high:
            return None
        same = (low, high) == (known.low, known.high)
        merged[condition.index] = known if same else Condition(condition.index, low, high)
    return tuple(merged.values()) if merged else guard


def within(place: Sequence[Index], shape: Sequence[int]) -> Guard:
    """The conditions under which an array of that shape has an element at a place; none where it always does."""
    conditions = [Condition(index, 0, size) for index, size in zip(place, shape, strict=True)]
    return conjoin((), [condition for condition in conditions if decide(condition) is None]) or ()


def values_at(index: Index, at: Mapping[Axis, np.ndarray]) -> np.ndarray:
    """The values of an index without computed numbers, for these of its axes."""
    found: np.ndarray = np.asarray(index.const)
    for atom, times in index.terms:
        match atom:
            case Axis():
                found = found + times * at[atom]
            case Quotient():
                found = found + times * (values_at(atom.of, at) // atom.by)
            case Remainder():
                found = found + times * (values_at(atom.of, at) % atom.by)
            case _:
                raise CompilerBug(f"{index} is not known before the program runs")
    return np.broadcast_to(found, np.broadcast_shapes(np.shape(found), *(np.shape(each) for each in at.values())))


def substitute_guard(guard: Guard, mapping: Mapping[Axis, Index]) -> Guard | None:
    return conjoin((), [Condition(substitute(c.index, mapping), c.low, c.high) for c in guard])


def settled(place: tuple[Index, ...], guard: Guard) -> tuple[tuple[Index, ...], Guard]:
    """The place and the conditions, where what can only have one value under the guard has it.

    x[i - 2], where 2 <= i < 3             →   x[0], where 2 <= i < 3
    x[i // 33], where 14 <= i // 33 < 15   →   x[14], where 14 <= i // 33 < 15
    """
    values = dict([value for condition in guard if (value := condition.only_value) is not None])
    if not values:
        return place, guard
    axes = {atom: constant(value) for atom, value in values.items() if isinstance(atom, Axis)}
    return tuple(_with_values(substitute(index, axes), values) for index in place), guard


def _with_values(index: Index, values: Mapping[Atom, int]) -> Index:
    if not any(atom in values for atom, _ in index.terms):
        return index
    known = sum(factor * values[atom] for atom, factor in index.terms if atom in values)
    return Index(index.const + known, tuple(term for term in index.terms if term[0] not in values))
