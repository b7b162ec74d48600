"""What an element of an equation's result reads of the operands, once the equation has been asked for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.nodes import Demand, Place
from jaxpr2triton.ir.index import ZERO, Axis, Guard, Index, constant, substitute
from jaxpr2triton.ir.jaxprs import Atom, Eqn


@dataclass(frozen=True, eq=False)
class Filling:
    """What a gather gives where its index lies outside."""

    eqn: Eqn


Read = tuple[Atom | Filling, Demand]


@dataclass(frozen=True)
class Elements:
    """Of a pointwise equation: an element of each operand."""

    operands: Sequence[Read]


@dataclass(frozen=True)
class Pieces:
    """Of an equation that only moves elements: the first piece whose conditions hold."""

    pieces: Sequence[tuple[Guard, Read]]


@dataclass(frozen=True)
class Counted:
    """Of an `iota`: nothing, its element is an index."""

    index: Index


@dataclass(frozen=True)
class Combined:
    """Of a reduction: the elements (several where an axis is unrolled) that are combined along the axes `over`."""

    elements: Sequence[Sequence[Read]]  # the parts of each, of which most have one
    over: tuple[Axis, ...]
    positions: tuple[Index, ...]


@dataclass(frozen=True)
class Terms:
    """Of a contraction: the two factors of each term (several where an axis is unrolled), summed along `over`."""

    factors: Sequence[tuple[Read, Read]]
    over: tuple[Axis, ...]
    positions: tuple[Index, ...]


@dataclass(frozen=True)
class Written:
    """Of a buffer: what is written, and where, all along the axes `over`."""

    number: Number
    places: tuple[Place, ...]
    operands: Sequence[Read]
    over: tuple[Axis, ...]


@dataclass(frozen=True)
class Shown(Written):
    """Of what programs show each other: the same, and along which of those axes each has a part."""

    shared: frozenset[Axis]


@dataclass(frozen=True)
class Update:
    """Of what meets at computed places: a part of it, its place and when it lies inside, and the numbers of these."""

    place: Place
    guard: Guard
    value: Read
    numbers: tuple[Read, ...]


@dataclass(frozen=True)
class Accumulating:
    """Of a buffer in which updates meet: how it begins, all along the axes `over`, and the updates, `along` theirs."""

    number: Number
    places: tuple[Place, ...]
    starts: Sequence[Read]
    over: tuple[Axis, ...]
    updates: Sequence[Update]
    along: tuple[Axis, ...]

    @property
    def operands(self) -> list[Read]:
        return [*self.starts, *(read for each in self.updates for read in (*each.numbers, each.value))]


@dataclass(frozen=True)
class Along:
    """Of what is swept: the operand along all of an axis, and at which place of it the result is wanted."""

    operands: Sequence[Read]
    axis: Axis
    index: Index


@dataclass(frozen=True)
class Brought:
    """Of what is computed at its own lanes: those, and which of them is wanted along some axes."""

    operands: Sequence[Read]
    moves: Mapping[Axis, Index]


Asked = Elements | Pieces | Counted | Combined | Terms | Written | Accumulating | Along | Brought


def reads_of(asked: Asked) -> list[Read]:
    """Everything that is read, in the order in which it is made."""
    match asked:
        case Pieces():
            return [read for _, read in reversed(asked.pieces)]
        case Counted():
            return []
        case Terms():
            return [read for pair in asked.factors for read in pair]
        case Combined():
            return [read for element in asked.elements for read in element]
        case _:
            return list(asked.operands)


def with_reduced(kept: Place, reduced: Mapping[int, Index], shape: Sequence[int]) -> Place:
    """The place in an operand: given indices in some dimensions, the result's own, in order, in the others."""
    rest = iter(kept)
    return tuple(reduced[d] if d in reduced else next(rest) for d in range(len(shape)))


def aligned(place: Place, shape: Sequence[int]) -> Place:
    """Where a pointwise equation reads an operand: scalars and dimensions of size 1 are stretched."""
    if not shape:
        return ()
    if 1 not in shape:
        return place
    return tuple(ZERO if size == 1 else i for i, size in zip(place, shape, strict=True))


def ordered_axes(place: Place) -> tuple[Axis, ...]:
    """The axes of a place, each once, outermost first."""
    found: dict[Axis, None] = {}
    for index in place:
        for axis in sorted(index.axes, key=lambda a: (-(index.coefficient(a) or 0), a.name)):
            found[axis] = None
    return tuple(found)


def every_place(place: Place, unrolled: frozenset[Axis]) -> Iterable[Place]:
    """The place, once for each index of the unrolled axes in it."""
    axes = sorted({a for i in place for a in i.axes if a in unrolled}, key=lambda a: a.name)
    for values in itertools.product(*(range(axis.size) for axis in axes)):
        yield tuple(substitute(i, dict(zip(axes, map(constant, values)))) for i in place)
