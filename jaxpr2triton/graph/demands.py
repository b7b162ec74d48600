"""What is wanted of a jaxpr: at which indices each variable, and what each wanted element reads.

y = exp x, and y is wanted at [i, j]    →    wanted[x] = [i, j], and reads[y, [i, j]] = the element of x at [i, j]

`Demands` is the record, and what every equation does to it: `want`. `graph/propagate_demands.py` asks the equations.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from jaxpr2triton import policy
from jaxpr2triton.graph import guards
from jaxpr2triton.graph.chooser import Chooser, Number
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.nodes import Demand, Place, Remembered, axes_in
from jaxpr2triton.graph.reads import Asked, Combined, Filling, Pieces, Read, Terms, ordered_axes, with_reduced
from jaxpr2triton.ir.dtypes import with_sign
from jaxpr2triton.ir.index import (
    ZERO,
    Axis,
    Dynamic,
    Guard,
    Index,
    computed_in,
    conjoin,
    constant,
    decide,
    plain_axis,
    settled,
    substitute,
)
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of, once
from jaxpr2triton.ir.scans import Scan, scans_in
from jaxpr2triton.rules.indexing import Piece

Dims = tuple[int, ...]
Some = TypeVar("Some", bound=Atom)


@dataclass(eq=False)
class TooManyPlaces(Exception):
    """A value is wanted at so many places that computing it once, into memory, is better."""

    variable: Var
    dims: Dims | None = None  # along which it has to be kept, if it is kept and wanted elsewhere than it is written
    along: Dims = ()  # … if it is not kept, and wanted at several places of these dimensions only
    beside: Sequence[Var] = ()  # what the same loop makes, and is wanted at too many places as well
    others: Sequence[Var] = ()  # with this one in memory, so are these


@dataclass
class Crowds:
    """What a trial walk through the body of a loop has found wanted at many places (`graph/crowded.py`)."""

    dims: dict[Var, tuple[int, ...]] = field(default_factory=dict)  # what might be kept, and along which dimensions
    times: dict[Var, float] = field(default_factory=dict)  # how often values would be computed if nothing were kept

    @property
    def are_large(self) -> bool:
        """Whether a step would do anything so often that it takes less time to keep it all."""
        return any(self.times[var] > policy.COMMON.times_in_a_step for var in self.dims)


@dataclass
class Demands:
    """The demands on one jaxpr: the kernel's own, or the body of a loop in it."""

    jaxpr: Jaxpr
    choose: Chooser
    unrolled: frozenset[Axis]
    may_repeat: bool
    path: Number = ()
    steps: frozenset[Axis] = frozenset()  # of the loops around
    buffers: Mapping[Var, int] = field(default_factory=dict)
    crowds: Crowds | None = None  # what a trial finds wanted at many places, where that is asked for at one only
    held: frozenset[Axis] = frozenset()  # what the loop around has whole of what it carries
    around: frozenset[Axis] = frozenset()  # the steps but for those of the body's own loop
    given: frozenset[Var] = frozenset()  # what is the same in all of these
    wanted: dict[Var, dict[Demand, None]] = field(default_factory=dict)
    reads: dict[tuple[Var, Demand], Asked] = field(default_factory=dict)
    entered: dict[int, EnteredLoop] = field(default_factory=dict)  # the loops, by their positions
    asking: list[int] = field(default_factory=list)  # positions whose results are wanted, negative: the last one first
    asked: list[int] = field(default_factory=list)  # those that have asked their operands, last one first
    reduced_axes: set[Axis] = field(default_factory=set)
    waits: dict[Var, float | None] = field(default_factory=dict)  # what is known of `brought.waits_for`
    crowding: list[Var] = field(default_factory=list)  # what had better be in memory: nobody asks what it is made of
    makers: Mapping[Var, int] = field(init=False)  # the position of the equation of each variable
    finals: frozenset[Var] = field(init=False)  # what loops have carried to their ends

    def __post_init__(self) -> None:
        self.makers = makers_of(self.jaxpr)
        self.finals = _finals(self.jaxpr)

    def want(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]:
        return self.want_at(*self.reading(atom, place, guard))

    def want_at(self, atom: Some, demand: Demand) -> tuple[Some, Demand]:
        """The same where the place and the guard are settled."""
        if not isinstance(atom, Literal):
            wanted = self.wanted.get(atom)
            if wanted is None:
                wanted = self.wanted[atom] = {}
                if atom in self.makers and atom not in self.buffers:
                    heapq.heappush(self.asking, -self.makers[atom])
            wanted[demand] = None
            if atom in self.finals and atom not in self.buffers:
                self.choose.final.update(axis for index in demand[0] for axis in index.axes)
        return atom, demand

    def reading(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]:
        """How an atom is read at a place; an element that exists for all values of some axes needs no guard of them."""
        place, guard = settled(place, guard)
        return atom, Remembered((place, guards.needed(guard, place, atom.aval.shape) if guard else guard))

    def on(self, atom: Atom) -> tuple[Demand, ...]:
        """Where a variable is wanted that this walk has to compute; a literal is there anyway."""
        if isinstance(atom, Literal) or atom in self.buffers:
            return ()
        return tuple(self.wanted.get(atom, ()))

    def inside(
        self, scan: Scan, number: Number, step: Index, facts: LoopFacts, binding: Mapping[Kind, Index]
    ) -> Demands:
        """The demands on the body of a loop of this kernel; nothing in it can be cut out."""
        chooser, steps = self.choose.inside(facts, binding), self.steps | step.axes
        held = frozenset(a for kind, index in binding.items() if kind in facts.held for a in index.axes)
        crowds, around, given = self.crowds, self.steps, facts.given
        return Demands(scan.body, chooser, self.unrolled, True, number, steps, {}, crowds, held, around, given)

    def hints(self, operand: Atom, dims: Sequence[int]) -> list[Axis | None]:
        """Along what an operand is wanted anyway, in a loop."""
        places = [place for place, _ in self.on(operand)] if self.steps else []
        return [plain_axis(places[0][d]) if len({place[d] for place in places}) == 1 else None for d in dims]

    def number(self, atom: Atom, place: Place, limits: tuple[int, int], clamped: bool, guard: Guard = ()) -> Index:
        """An integer that the kernel computes, as an index."""
        if isinstance(atom, Literal):
            return constant(min(max(int(atom.val), limits[0]), limits[1]) if clamped else int(atom.val))
        _, demand = self.want(atom, place, guard if place else ())
        axes = frozenset(axes_in(*demand)) | (self.around if atom in self.given else self.steps)
        signed = with_sign(atom.aval.dtype, limits[1])
        return Index(0, ((Dynamic((self.path, atom, demand), axes, *limits, clamped, signed), 1),))

    def ask_pieces(self, eqn: Eqn, pieces: Sequence[Piece], guard: Guard) -> Pieces:
        asked: list[tuple[Guard, Read]] = []
        for number, piece in enumerate(pieces):
            narrowed = conjoin(guard, piece.conditions)
            last = number == len(pieces) - 1
            if narrowed is None and not (last and not asked):
                continue
            if piece.operand < 0:
                source: Read = (Filling(eqn), ((), ()))
            else:
                source = self.want(eqn.invars[piece.operand], piece.index, narrowed or guard)
            undecided = tuple(c for c in piece.conditions if decide(c) is None)
            asked.append((undecided, source))
            if not undecided:
                break
        return Pieces(asked)

    def ask_reduction(
        self, eqn: Eqn, dims: Sequence[int], indices: Place, place: Place, guard: Guard
    ) -> Combined | Terms:
        axes = tuple(axis for axis in ordered_axes(indices))
        unrolled = [axis for axis in axes if axis in self.unrolled]
        over = tuple(axis for axis in axes if axis not in self.unrolled)
        values = itertools.product(*(map(constant, range(axis.size)) for axis in unrolled))
        fixed = [dict(zip(unrolled, each)) for each in values]
        chosen = [tuple(substitute(index, each) for index in indices) for each in fixed]
        positions = tuple(each[0] if each else ZERO for each in chosen)
        if eqn.primitive.name == "dot_general":
            return Terms([self._ask_term(eqn, each, place, guard) for each in chosen], over, positions)
        places = [with_reduced(place, dict(zip(dims, each)), eqn.invars[0].aval.shape) for each in chosen]
        return Combined([[self.want(part, each, guard) for part in eqn.invars] for each in places], over, positions)

    def _ask_term(self, eqn: Eqn, chosen: Place, place: Place, guard: Guard) -> tuple[Read, Read]:
        """The two factors of one term of a contraction."""
        (left_sums, right_sums), (left_batch, right_batch) = eqn.params["dimension_numbers"]
        left, right = eqn.invars
        batch = place[: len(left_batch)]
        free = len(left.aval.shape) - len(left_sums) - len(left_batch)
        left_free, right_free = place[len(batch) : len(batch) + free], place[len(batch) + free :]
        left_place = with_reduced(left_free, dict(zip((*left_sums, *left_batch), (*chosen, *batch))), left.aval.shape)
        right_place = with_reduced(
            right_free, dict(zip((*right_sums, *right_batch), (*chosen, *batch))), right.aval.shape
        )
        return self.want(left, left_place, guard), self.want(right, right_place, guard)


@dataclass
class EnteredLoop:
    """A loop whose results are wanted: where its step and its classes run, and the demands on its body."""

    scan: Scan
    step: Index  # the index of the step, as xs and ys see it
    held: frozenset[Axis]
    bound: frozenset[Axis]
    live: list[int]  # positions of the carried values that somebody needs
    inner: Demands
    places: dict[int, list[Place]] = field(default_factory=dict)  # carried position → every place, unrolled ones apart
    starts: list[Read] = field(default_factory=list)  # what is read outside for the starts, in order


def numbers_in(indices: Iterable[Index]) -> Iterator[tuple[Number, Var, Demand]]:
    """The computed numbers in these indices: of the demands of which path, which variable, and where."""
    return (cast(tuple[Number, Var, Demand], number.key) for index in indices for number in computed_in(index))


@once
def _finals(jaxpr: Jaxpr) -> frozenset[Var]:
    """What loops have carried to their ends."""
    return frozenset(result for scan in scans_in(jaxpr) for _, _, _, result in scan.carries)
