"""In how many bits each part of an index is written: no product and no sum on the way to it may leave its own.

row * 1000 + col      →      row.to(tl.int64) * 1000 + col          of 2,200,000 rows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.graph.nodes import Graph, Keep, Kept, Load, Place
from jaxpr2triton.ir.dtypes import with_sign
from jaxpr2triton.ir.index import Atom, Axis, Dynamic, Index, Quotient, computed_in
from jaxpr2triton.ir.plan import Plan

WORD = 32  # bits of what Triton counts in


def fits(low: float, high: float, bits: int) -> bool:
    """Whether all numbers between these two are signed ones of so many bits."""
    return -(1 << bits - 1) <= low and high < 1 << bits - 1


@dataclass(frozen=True)
class Numbers:
    """What the computed numbers in places lie between that need not be brought into range, and the narrowest of all.

    Triton's text does not say that of each of them, so that all are written, and checked, as if they were alike.
    """

    low: int = 0
    high: int = -1  # there are none
    bits: int = 64

    def joined(self, low: int, high: int) -> tuple[int, int]:
        return (min(low, self.low), max(high, self.high)) if self.low <= self.high else (low, high)


def numbers_of(graph: Graph) -> Numbers:
    kinds = [with_sign(node.dtype) or node.dtype for node in graph.computed.values()]
    bits = min((8 * np.dtype(kind).itemsize for kind in kinds), default=64)
    found = [each for place in _places(graph) for index in place for each in computed_in(index)]
    free = [number for number in found if not number.clamped]
    low, high = min((each.low for each in free), default=0), max((each.high for each in free), default=-1)
    return Numbers(low, high, bits)


def _places(graph: Graph) -> Iterator[Place]:
    """Where something is read, stored or kept."""
    yield from (read.place for read in graph.of_kind((Load, Kept)))
    yield from (store.place for store in graph.stores)
    for keep in graph.of_kind(Keep):
        yield from keep.places


Ends = tuple[int, int]  # the least and the largest value, both included


class Widths:
    """The widths of the indices of one plan, found out once for each."""

    def __init__(self, plan: Plan, numbers: Numbers) -> None:
        self.planned = {planned.axis: planned for planned in plan.axes}
        self.numbers, self.ahead = numbers, plan.policy.loops.steps_ahead
        self._known: dict[Index, tuple[Mapping[Atom, int], Ends]] = {}

    def is_wide(self, axis: Axis) -> bool:
        """Whether the places along an axis are numbers of 64 bits, wherever they are read."""
        planned = self.planned[axis]
        return not fits(0, planned.block * planned.steps - 1, WORD)

    def own(self, atom: Atom) -> int:
        """The bits of an atom as it is."""
        match atom:
            case Axis():
                return 64 if self.is_wide(atom) else WORD
            case Dynamic():
                return self.numbers.bits
        return self.sum(atom.of)

    def sum(self, index: Index) -> int:
        """The bits of an index as it is written."""
        return max(self.of(index).values(), default=WORD)

    def of(self, index: Index) -> Mapping[Atom, int]:
        """The bits that each of its atoms has to have: the first one those of the sums, where these need more."""
        return self._found(index)[0]

    def _found(self, index: Index) -> tuple[Mapping[Atom, int], Ends]:
        if index not in self._known:
            self._known[index] = self._of_sum(index)
        return self._known[index]

    def _of_sum(self, index: Index) -> tuple[Mapping[Atom, int], Ends]:
        bits: dict[Atom, int] = {}
        low = high = 0
        sums: list[Ends] = []
        for atom, factor in index.terms:
            first, last = self._ends(atom)
            term = min(factor * first, factor * last), max(factor * first, factor * last)
            low, high = low + term[0], high + term[1]
            bits[atom] = _enough(self.own(atom), (first, last), (0, abs(factor)), term)
            sums.append((low, high))
        low, high = low + index.const, high + index.const
        if bits:
            leading = next(iter(bits))
            widest = max(bits.values())
            needed = _enough(widest, *sums, (0, abs(index.const)), (low, high))
            bits[leading] = needed if needed > widest else bits[leading]
        return bits, (low, high)

    def _ends(self, atom: Atom) -> Ends:
        """The least and the largest, in lanes beyond an axis as well, and where the next steps of a loop are read."""
        match atom:
            case Axis():
                planned = self.planned[atom]
                beyond = self.ahead * planned.block if planned.role.is_sequential else 0
                return -beyond, planned.block * planned.steps - 1 + beyond
            case Dynamic():
                return (atom.low, atom.high) if atom.clamped else self.numbers.joined(atom.low, atom.high)
        low, high = self._found(atom.of)[1]
        if isinstance(atom, Quotient):
            return low // atom.by, high // atom.by
        return 0 if low >= 0 else 1 - atom.by, atom.by - 1


def _enough(bits: int, *parts: Ends) -> int:
    """So many bits, if they hold all of these, or as many as do."""
    return next((each for each in (bits, WORD) if each >= bits and all(fits(*part, each) for part in parts)), 64)
