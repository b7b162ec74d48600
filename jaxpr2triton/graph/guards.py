"""The conditions under which an element is there, and which of them a place needs."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.graph.nodes import Place
from jaxpr2triton.ir.index import Axis, Guard, Index


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
