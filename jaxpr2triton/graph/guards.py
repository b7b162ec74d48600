"""The conditions under which an element is there: which of them a place needs, and what they say of each other."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.graph.nodes import Place
from jaxpr2triton.ir.index import Axis, Condition, Guard, Index, conjoin


def needed(guard: Guard, place: Place, shape: Sequence[int]) -> Guard:
    """The conditions without those that run along other axes and say nothing of whether a place is inside.

    x[i - 1] if i >= 1 and n[k] == j    →    x[i - 1] if i >= 1      one element for all j and k
    """
    if inside(place, shape):
        return ()
    own = frozenset(axis for index in place for axis in index.axes)
    if all(condition.index.axes <= own for condition in guard):
        return guard
    beyond = [index for index, size in zip(place, shape) if not _is_in(index, size)]
    if not all(index.axes for index in beyond):
        return guard  # nowhere, as what is padded between and beyond elements
    said = _said_of(frozenset(axis for index in beyond for axis in index.axes), guard)
    return tuple(condition for condition in guard if condition.index.axes <= own or condition in said)


def _said_of(axes: frozenset[Axis], guard: Guard) -> Guard:
    """The conditions about some axes, or about others that stand in one condition with these."""
    while more := {axis for each in guard if not each.index.axes.isdisjoint(axes) for axis in each.index.axes} - axes:
        axes |= more
    return tuple(each for each in guard if not each.index.axes.isdisjoint(axes))


def inside(place: Place, shape: Sequence[int]) -> bool:
    """Whether an element is there for all values of the axes."""
    return all(_is_in(index, size) for index, size in zip(place, shape, strict=True))


def _is_in(index: Index, size: int) -> bool:
    low, high = index.bounds
    return low >= 0 and high < size


def without_implied(guard: Guard) -> Guard:
    """Without the ranges of numbers that another condition gives a value: 0 <= n < 3 beside n == k of k in 0 … 2."""
    exact = [c for c in guard if c.high == c.low + 1 and len(c.index.terms) > 1]
    implied = [c for c in guard for other in exact if c is not other and _is_implied(c, other)]
    return tuple(c for c in guard if c not in implied)


def _is_implied(condition: Condition, exact: Condition) -> bool:
    """Whether a number lies in its range because of an equation that it is part of."""
    if condition.index.const or len(condition.index.terms) != 1:
        return False
    ((atom, factor),) = condition.index.terms
    own = dict(exact.index.terms).get(atom)
    if factor != 1 or own not in (1, -1):
        return False
    others = Index(exact.index.const, tuple(term for term in exact.index.terms if term[0] != atom))
    low, high = sorted((exact.low - bound) * own for bound in others.bounds)
    return condition.low <= low and high < condition.high


def without_factor(condition: Condition) -> Condition:
    """Of an axis, if it is of a multiple of one: 0 <= k < 1 in the place of 0 <= 2 k < 1."""
    index = condition.index
    if index.const or len(index.terms) != 1 or index.terms[0][1] < 2:
        return condition
    ((atom, by),) = index.terms
    return Condition(Index(0, ((atom, 1),)), -(-condition.low // by), -(-condition.high // by))


def range_of(index: Index) -> tuple[int, int]:
    """The range of a known index."""
    low, high = index.bounds
    return (low, low + 1) if low == high else (0, 0)


def elsewhere(guard: Guard) -> Guard:
    """Where a condition does not hold, if that is at one end of an axis."""
    if len(guard) != 1:
        return ()
    low, high = guard[0].index.bounds
    ends = {(low + 1, high + 1): low, (low, high): high}
    at = ends.get((max(guard[0].low, low), min(guard[0].high, high + 1)))
    return () if at is None else (Condition(guard[0].index, at, at + 1),)


def either(one: Guard, other: Guard) -> Guard | None:
    """One condition for what lies in either of two neighbouring ranges of one index."""
    joined = conjoin((), other)
    if joined is None or len(one) != 1 or len(joined) != 1 or one[0].index != joined[0].index:
        return None
    first, second = sorted((one[0], joined[0]), key=lambda condition: condition.low)
    if first.high < second.low:
        return None
    return (Condition(first.index, first.low, max(first.high, second.high)),)


def implies(guard: Guard, conditions: Sequence[Condition]) -> bool:
    """Whether all conditions hold where the guard does."""
    held = {c.index: c for c in conjoin((), guard) or ()}
    wanted = conjoin((), conditions)
    return wanted is not None and all(
        c.index in held and c.low <= held[c.index].low and held[c.index].high <= c.high for c in wanted
    )
