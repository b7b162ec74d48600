"""Demand by index: from "these outputs at these indices" back to the loads.

`walk` goes through a jaxpr twice. Backwards, each equation learns at which indices its result is wanted and asks its
operands; forwards, every (variable, index) that was wanted becomes one node. What is asked for twice is one node.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from jaxpr2triton import policy
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import accumulate, brought, crowded, dynamic, early, guards, joint_sums, keep, loops, sweeps
from jaxpr2triton.graph.chooser import Chooser, Number
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.graph.crowds import Crowds
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.loops import every_place
from jaxpr2triton.graph.neutral import is_zero, left_alone
from jaxpr2triton.graph.nodes import (
    Choose,
    Compute,
    Constant,
    Demand,
    Graph,
    Load,
    Lookup,
    Node,
    Place,
    Position,
    Product,
    Reduce,
    Remembered,
    Store,
    Take,
    axes_in,
    axes_of,
)
from jaxpr2triton.graph.reads import (
    Accumulating,
    Along,
    Asked,
    Brought,
    Combined,
    Counted,
    Elements,
    Filling,
    Pieces,
    Read,
    Terms,
    Written,
    aligned,
    ordered_axes,
    with_reduced,
)
from jaxpr2triton.graph.walking import Dims, LoopWalk, Made, Some
from jaxpr2triton.ir.accumulate import accumulate_p
from jaxpr2triton.ir.dtypes import with_sign
from jaxpr2triton.ir.index import (
    ZERO,
    Axis,
    Condition,
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
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of, once
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scans_in
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing, Piece, iota_place
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep


class TooManyPlaces(Exception):
    """A value is wanted at so many places that computing it once, into memory, is better."""

    def __init__(
        self,
        variable: Var,
        dims: Dims | None = None,
        beside: Sequence[Var] = (),
        along: Dims = (),
        others: Sequence[Var] = (),
    ) -> None:
        super().__init__(f"{variable} is wanted at too many places")
        self.variable = variable
        self.others = tuple(others)  # with this one in memory, so are these
        self.beside = tuple(beside)  # what the same loop makes, and is wanted at too many places as well
        self.dims = dims  # along which it has to be kept, if it is kept and wanted elsewhere than it is written
        self.along = along  # … if it is not kept, and wanted at several places of these dimensions only


@dataclass
class Walk:
    """A walk through one jaxpr: the kernel's own, or the body of a loop in it."""

    jaxpr: Jaxpr
    choose: Chooser
    unrolled: frozenset[Axis]
    may_repeat: bool
    path: Number = ()
    steps: frozenset[Axis] = frozenset()  # of the loops around
    buffers: Mapping[Var, int] = field(default_factory=dict)
    order: list[Node] = field(default_factory=list)
    made: dict[Hashable, Node] = field(default_factory=dict)
    wanted: dict[Var, dict[Demand, None]] = field(default_factory=dict)
    makers: Mapping[Var, int] = field(init=False)  # the position of the equation of each variable
    asking: list[int] = field(default_factory=list)  # positions whose results are wanted, negative: the last one first
    asked: list[int] = field(default_factory=list)  # those that have asked their operands, last one first
    summed: Mapping[Var, Eqn] = field(init=False)  # what only a sum reads → its equation
    finals: frozenset[Var] = field(init=False)  # what loops have carried to their ends
    reads: dict[tuple[Var, Demand], Asked] = field(default_factory=dict)
    nodes: dict[tuple[Var, Demand], Node] = field(default_factory=dict)
    entered: dict[int, LoopWalk] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    apart: set[Read] = field(default_factory=set)  # what is known to be no sum of contractions along the same axes
    reduced_axes: set[Axis] = field(default_factory=set)
    outside: dict[Var, Callable[[Demand], Node]] = field(default_factory=dict)  # a body's operands, in the kernel
    numbers: dict[Hashable, tuple[Walk, Var, Demand]] = field(default_factory=dict)  # computed numbers, by key
    computed: dict[Hashable, Node] = field(default_factory=dict)
    held: frozenset[Axis] = frozenset()  # what the loop around has whole of what it carries
    around: frozenset[Axis] = frozenset()  # the steps but for those of the body's own loop
    given: frozenset[Var] = frozenset()  # what is the same in all of these
    waits: dict[Var, float | None] = field(default_factory=dict)  # what is known of `brought.waits_for`
    crowds: Crowds | None = None  # what a trial finds wanted at many places, where that is asked for at one only
    crowding: list[Var] = field(default_factory=list)  # what had better be in memory: nobody asks what it is made of

    def __post_init__(self) -> None:
        self.makers = makers_of(self.jaxpr)
        self.summed = joint_sums.only_summed(self.jaxpr)
        self.finals = _finals(self.jaxpr)

    # -- backwards --------------------------------------------------------------------------------------------

    def backwards(self, roots: Sequence[tuple[Atom, Place]]) -> list[tuple[Atom, Demand]]:
        """Let every equation learn where its results are wanted; returns how to read the roots."""
        targets = [self.want(atom, place, ()) for atom, place in roots]
        while self.asking:
            number = -heapq.heappop(self.asking)
            if self.asked and number == self.asked[-1]:
                continue  # another one of its results
            self.asked.append(number)
            eqn = self.jaxpr.eqns[number]
            demands = [demand for out in eqn.outvars for demand in self.demands_on(out)]
            if eqn.primitive.name in LOOPS:
                self.entered[number] = loops.enter(self, (*self.path, number), eqn)
            else:
                self.ask((*self.path, number), eqn, demands)
        return targets

    def check_crowding(self) -> None:
        """Raise for all that is wanted at too many places; it comes before whatever else the walk has met."""
        if self.crowding:  # no name here for what is raised: it would keep the walk, and itself, until a collection
            raise TooManyPlaces(self.crowding[0], others=self.crowding[1:])

    def forget(self) -> None:
        """Let go of what knows this walk: it is large, and else there until the next collection of cycles."""
        self.numbers.clear()
        self.entered.clear()

    def demands_on(self, atom: Atom) -> tuple[Demand, ...]:
        """Where a variable is wanted that this walk has to compute; a literal is there anyway."""
        if isinstance(atom, Literal) or atom in self.buffers:
            return ()
        return tuple(self.wanted.get(atom, ()))

    def inside(self, scan: Scan, number: Number, step: Index, facts: LoopFacts, binding: Mapping[Kind, Index]) -> Walk:
        """The walk through the body of a loop of this kernel."""
        chooser = self.choose.inside(facts, binding)
        steps = self.steps | step.axes
        walk = Walk(scan.body, chooser, self.unrolled, True, number, steps)  # nothing in it can be cut out
        walk.around, walk.given = self.steps, facts.given
        walk.held = frozenset(a for kind, index in binding.items() if kind in facts.held for a in index.axes)
        walk.order, walk.made = self.order, self.made
        walk.numbers, walk.computed, walk.crowds = self.numbers, self.computed, self.crowds
        return walk

    def facts(self, scan: Scan) -> LoopFacts:
        return facts_of(scan)

    def crowded(
        self, var: Var, dims: Dims | None = None, beside: Sequence[Var] = (), along: Dims = ()
    ) -> TooManyPlaces:
        return TooManyPlaces(var, dims, beside, along)

    def want(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]:
        return self._want_at(*self.reading(atom, place, guard))

    def _want_at(self, atom: Some, demand: Demand) -> tuple[Some, Demand]:
        if not isinstance(atom, Literal):
            if atom not in self.wanted:
                self.wanted[atom] = {}
                if atom in self.makers and atom not in self.buffers:
                    heapq.heappush(self.asking, -self.makers[atom])
            self.wanted[atom][demand] = None
            if atom in self.finals and atom not in self.buffers:
                self.choose.final.update(axis for index in demand[0] for axis in index.axes)
        return atom, demand

    def reading(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]:
        """How an atom is read at a place; an element that exists for all values of some axes needs no guard of them."""
        place, guard = settled(place, guard)
        return atom, Remembered((place, guards.needed(guard, place, atom.aval.shape) if guard else guard))

    def ask(self, number: Number, eqn: Eqn, demands: Sequence[Demand]) -> None:
        """Record what each wanted element of the equation's result reads."""
        row = TABLE.get(eqn.primitive.name)
        out = eqn.outvars[0]
        if not self.may_repeat and len(demands) > _places_at_most(row, eqn):
            self.crowding.append(out)
            return
        demands = crowded.at_once(self, number, eqn, demands)
        if isinstance(row, Reduction) or eqn.primitive.name == "dot_general":
            in_use = frozenset(axis for place, guard in demands for axis in axes_in(place, guard))
            dims = eqn.params["axes"] if isinstance(row, Reduction) else eqn.params["dimension_numbers"][0][0]
            hints = self._walked(eqn) or self.hints(eqn.invars[0], dims)
            indices = self.choose.reduction(number, eqn.invars[0], dims, in_use, hints)
            self.reduced_axes |= {axis for index in indices for axis in index.axes}
            for demand in demands:
                self.reads[out, demand] = self._ask_reduction(eqn, dims, indices, *demand)
            return
        if isinstance(row, Sweep):
            sweeps.ask(self, number, eqn, demands)
            return
        if eqn.primitive is keep_p:
            keep.ask(self, number, eqn, demands)
            return
        if eqn.primitive is accumulate_p:
            accumulate.ask(self, number, eqn, demands)
            return
        for demand in brought.ask(self, eqn, demands):
            self.reads[out, demand] = self._ask_one(eqn, demand)

    def _ask_one(self, eqn: Eqn, demand: Demand) -> Asked:
        """What one element of a result reads where nothing is combined."""
        row, (place, guard) = TABLE.get(eqn.primitive.name), demand
        if isinstance(row, Pointwise):
            return Elements([self._want_element(v, demand, eqn.outvars[0].aval.shape) for v in eqn.invars])
        if isinstance(row, Indexing):
            return self._pieces(eqn, row.read(eqn, place), guard)
        if eqn.primitive.name == "iota":
            return Counted(iota_place(eqn, place))
        if eqn.primitive.name in dynamic.TABLE:
            return self._pieces(eqn, dynamic.TABLE[eqn.primitive.name](self, eqn, place, guard), guard)
        raise CompilerBug(f"no rule for `{eqn.primitive.name}` inside a kernel")

    def _want_element(self, atom: Atom, demand: Demand, shape: Sequence[int]) -> tuple[Atom, Demand]:
        """The operand of an elementwise equation; one of the result's shape is read just where that is wanted."""
        place, guard = demand
        own = aligned(place, atom.aval.shape)
        if own is place and isinstance(demand, Remembered) and atom.aval.shape == shape:
            return self._want_at(atom, demand)
        return self.want(atom, own, guard)

    def hints(self, operand: Atom, dims: Sequence[int]) -> list[Axis | None]:
        """Along what an operand is wanted anyway, in a loop."""
        places = [place for place, _ in self.demands_on(operand)] if self.steps else []
        return [plain_axis(places[0][d]) if len({place[d] for place in places}) == 1 else None for d in dims]

    def _walked(self, eqn: Eqn) -> list[Axis | None]:
        """Axes of their own for the terms of a product whose factor is kept along them: those need not be held."""
        if eqn.primitive.name != "dot_general":
            return []
        for factor, dims in zip(eqn.invars, eqn.params["dimension_numbers"][0]):
            maker = None if isinstance(factor, Literal) else self.makers.get(factor)
            kept = {} if maker is None else self.jaxpr.eqns[maker].params
            if maker is not None and self.jaxpr.eqns[maker].primitive is keep_p and set(dims) <= set(kept["dims"]):
                return [Axis(f"p{n}", factor.aval.shape[d]) for n, d in enumerate(dims)]
        return []

    def number(self, atom: Atom, place: Place, limits: tuple[int, int], clamped: bool, guard: Guard = ()) -> Index:
        """An integer that the kernel computes, as an index."""
        if isinstance(atom, Literal):
            return constant(min(max(int(atom.val), limits[0]), limits[1]) if clamped else int(atom.val))
        _, demand = self.want(atom, place, guard if place else ())
        key = (self.path, atom, demand)
        self.numbers[key] = (self, atom, demand)
        axes = frozenset(axes_in(*demand)) | (self.around if atom in self.given else self.steps)
        return Index(0, ((Dynamic(key, axes, *limits, clamped, with_sign(atom.aval.dtype, limits[1])), 1),))

    def _pieces(self, eqn: Eqn, pieces: Sequence[Piece], guard: Guard) -> Pieces:
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

    def _ask_reduction(
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
        (operand,) = eqn.invars
        places = [with_reduced(place, dict(zip(dims, each)), operand.aval.shape) for each in chosen]
        return Combined([self.want(operand, each, guard) for each in places], over, positions)

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

    # -- forwards ---------------------------------------------------------------------------------------------

    def forwards(self) -> None:
        """Make the nodes of everything that is wanted, operands first."""
        for number in reversed(self.asked):
            eqn = self.jaxpr.eqns[number]
            if number in self.entered:
                self.leave(number)
                loops.build_results(self, eqn)
                continue
            if eqn.outvars[:1] and eqn.outvars[0] in self.summed:
                continue  # built with the sum, or when that asks for it
            for out in eqn.outvars:
                for demand in reversed(self.demands_on(out)):
                    if (out, demand) not in self.nodes:
                        self.build(eqn, demand)

    def make(self, key: Hashable, build: Callable[[int], Made]) -> Made:
        """The node of this key, which is of one kind for each key; built if there is none yet."""
        if key not in self.made:
            self.made[key] = node = build(len(self.order))
            self.order.append(node)
        return cast(Made, self.made[key])

    def node(self, atom: Atom | Filling, demand: Demand) -> Node:
        if isinstance(atom, Filling):
            fill = dynamic.fill_value(atom.eqn)
            key = (str(fill.dtype), fill.tobytes())
            return self.make(key, lambda n: Constant(n, frozenset(), fill.dtype, fill))
        if isinstance(atom, Literal):
            dtype = np.dtype(atom.aval.dtype)
            value = cast(np.generic, np.asarray(atom.val, dtype)[()])
            return self.make((str(dtype), value.tobytes()), lambda n: Constant(n, frozenset(), dtype, value))
        if (atom, demand) not in self.nodes and atom in self.outside:
            self.nodes[atom, demand] = self.outside[atom](demand)
        if (atom, demand) not in self.nodes and atom in self.buffers:
            self.load(self.buffers[atom], atom, demand)
        if (atom, demand) not in self.nodes:
            early.build(self, atom, demand)
        return self.nodes[atom, demand]

    def leave(self, number: int) -> None:
        """Make what a loop gives out, and the loop with it."""
        if number not in self.left:
            self.left.add(number)
            loops.leave(self, self.entered[number])

    def needs(self, indices: Iterable[Index]) -> tuple[Node, ...]:
        """The nodes of the computed numbers in these indices."""
        found = {}
        for index in indices:
            for number in computed_in(index):
                walk, atom, demand = self.numbers[number.key]
                found[number.key] = walk.node(atom, demand)
        self.computed.update(found)
        return tuple(found.values())

    def build(self, eqn: Eqn, demand: Demand) -> None:
        """Make the node of an element of the equation's result, from those of what it reads."""
        (out, *_) = eqn.outvars
        self.nodes[out, demand] = self._built(eqn, self.reads[out, demand], demand, np.dtype(out.aval.dtype))

    def _built(self, eqn: Eqn, asked: Asked, demand: Demand, dtype: np.dtype) -> Node:
        match asked:
            case Elements():
                return joint_sums.build(self, eqn, asked, demand[0]) or self._computed(eqn, asked, dtype, demand[0])
            case Terms():
                terms = tuple(self.term(left, right, dtype) for left, right in asked.factors)
                return self._reduced(eqn, terms, asked, dtype, demand[0])
            case Combined():
                operands = tuple(self.node(*read) for read in asked.operands)
                return self._reduced(eqn, operands, asked, dtype, demand[0])
            case Along():
                return sweeps.build(self, eqn, asked, dtype)
            case Written():
                return keep.build(self, eqn, asked, demand)
            case Accumulating():
                return accumulate.build(self, eqn, asked, demand)
            case Brought():
                return brought.build(self, asked)
            case Pieces():
                return self._choose_piece(asked.pieces)
            case Counted(index):
                needs = self.needs([index])
                axes = index.axes | axes_of(needs)
                return self.make(("at", index, str(dtype)), lambda n: Position(n, axes, dtype, index, needs))

    def _computed(self, eqn: Eqn, asked: Elements, dtype: np.dtype, place: Place) -> Node:
        operands = tuple(self.node(*read) for read in asked.operands)
        return left_alone(eqn, operands) or self.make(
            ("compute", id(eqn), operands), lambda n: Compute(n, axes_of(operands), dtype, eqn, operands, place)
        )

    def _reduced(
        self, eqn: Eqn, operands: tuple[Node, ...], asked: Combined | Terms, dtype: np.dtype, place: Place
    ) -> Node:
        over, positions = asked.over, asked.positions
        axes = axes_of(operands) - frozenset(over)
        return self.make(
            ("reduce", id(eqn), operands, over), lambda n: Reduce(n, axes, dtype, eqn, operands, over, positions, place)
        )

    def term(self, left: Read, right: Read, dtype: np.dtype) -> Node:
        pair = self.node(*left), self.node(*right)
        return self.make(("term", pair, str(dtype)), lambda n: Product(n, axes_of(pair), dtype, pair))

    def take(self, source: Node, axis: Axis, index: Index) -> Node:
        needs = self.needs([index])
        axes = (source.axes - {axis}) | index.axes | axes_of(needs)
        return self.make(
            ("take", source, axis, index), lambda n: Take(n, axes, source.dtype, source, axis, index, needs)
        )

    def look_up(self, source: Node, at: Mapping[Axis, Index]) -> Node:
        needs, pairs = self.needs(at.values()), tuple(at.items())
        axes = source.axes.difference(at).union(axes_of(needs), *(index.axes for index in at.values()))
        return self.make(("look up", source, pairs), lambda n: Lookup(n, axes, source.dtype, source, pairs, needs))

    def chosen_from(self, pieces: Sequence[tuple[Guard, Node]]) -> Node:
        """The first one whose conditions hold; those of the last one are taken for granted."""
        (*others, (_, node)) = pieces
        for conditions, other in reversed(others):
            node = self._choose(conditions, other, node) if conditions else other
        return node

    def _choose_piece(self, pieces: Sequence[tuple[Guard, Read]]) -> Node:
        found = [(conditions, self.node(*read)) for conditions, read in reversed(pieces)]
        return self.chosen_from(found[::-1])

    def _choose(self, conditions: tuple[Condition, ...], then: Node, other: Node) -> Node:
        if isinstance(then, Load) and is_zero(other) and conjoin(then.guard, conditions) == then.guard:
            return then  # elsewhere zeros are loaded
        needs = self.needs([condition.index for condition in conditions])
        axes = axes_of((then, other, *needs)) | frozenset(a for c in conditions for a in c.index.axes)
        return self.make(
            ("choose", conditions, then, other), lambda n: Choose(n, axes, then.dtype, conditions, then, other, needs)
        )

    def load(self, buffer: int, var: Var, demand: Demand) -> None:
        place, guard = demand
        if not guard and not guards.inside(place, var.aval.shape):
            raise CompilerBug(f"an operand of shape {var.aval.shape} is read at ({', '.join(map(str, place))})")
        needs = self.needs([*place, *(condition.index for condition in guard)])
        axes = frozenset(axes_in(place, guard)) | axes_of(needs)
        self.nodes[var, demand] = self.make(
            ("load", buffer, demand), lambda n: Load(n, axes, np.dtype(var.aval.dtype), buffer, place, guard, needs)
        )


_FACTS: weakref.WeakKeyDictionary[Closed, LoopFacts] = weakref.WeakKeyDictionary()


def facts_of(scan: Scan) -> LoopFacts:
    """What of a loop one program has to have whole, and what it keeps; found out once for each body."""
    body = scan.eqn.params["jaxpr"]
    if body not in _FACTS:
        crowds = Crowds()
        facts = loops.loop_facts(scan, lambda chooser: _trial(scan, chooser, crowds))
        if crowds.dims and not crowds.are_large:
            facts = loops.loop_facts(scan, lambda chooser: _trial(scan, chooser, None))
        _FACTS[body] = facts
    return _FACTS[body]


def _trial(scan: Scan, chooser: Chooser, crowds: Crowds | None) -> Walk:
    """A walk through a body that only asks."""
    trial = Walk(scan.body, chooser, frozenset(), True, crowds=crowds)
    trial.waits.update((inside, None) for _, inside in scan.consts)
    return trial


def walk(
    jaxpr: Jaxpr,
    roots: Sequence[tuple[Atom, Place]],
    choose: Chooser,
    unrolled: frozenset[Axis] = frozenset(),
    loaded: Mapping[Var, int] | None = None,
    may_repeat: bool = True,
) -> Graph:
    """The graph of everything that `roots` (variable, index) need; a store's `output` is its root's position.

    `loaded` maps the jaxpr's operands, and further variables, to the buffers that hold them. Unless it
    `may_repeat`, a walk raises `TooManyPlaces` when a value would be computed again and again. Its time is that of what
    it finds.
    """
    buffers = {var: number for number, var in enumerate(jaxpr.invars)} if loaded is None else loaded
    state = Walk(jaxpr, choose, unrolled, may_repeat, (), frozenset(), buffers)
    places = [
        (output, atom, fixed) for output, (atom, place) in enumerate(roots) for fixed in every_place(place, unrolled)
    ]
    try:
        targets = _targets(state, [(atom, place) for _, atom, place in places])
        state.forwards()
        stores = tuple(Store(output, place, state.node(*read)) for (output, _, place), read in zip(places, targets))
        return Graph(tuple(state.order), stores, state.computed)
    finally:
        state.forget()


def _targets(state: Walk, roots: Sequence[tuple[Atom, Place]]) -> list[tuple[Atom, Demand]]:
    """How to read the roots, once every equation knows where it is wanted."""
    try:
        return state.backwards(roots)
    finally:
        state.check_crowding()


@once
def _finals(jaxpr: Jaxpr) -> frozenset[Var]:
    """What loops have carried to their ends."""
    return frozenset(result for scan in scans_in(jaxpr) for _, _, _, result in scan.carries)


def _places_at_most(row: object, eqn: Eqn) -> int:
    """At how many places a value is computed again rather than stored."""
    if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
        return 1
    match row:
        case Reduction():
            return policy.COMMON.places_of_a_sum
        case Pointwise() | Sweep():
            return policy.COMMON.places_computed
        case _:
            return policy.COMMON.places_moved
