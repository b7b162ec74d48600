"""Demand by index: from "these outputs at these indices" back to the loads.

`walk` goes through a jaxpr twice. Backwards, each equation learns at which indices its result is wanted and asks its
operands; forwards, every (variable, index) that was wanted becomes one node. What is asked for twice is one node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.extend.core as jex
import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.index import (
    ZERO,
    Axis,
    Condition,
    Guard,
    Index,
    conjoin,
    constant,
    decide,
    of_axis,
    substitute,
)
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.nodes import (
    Carried,
    Choose,
    Compute,
    Constant,
    Demand,
    Final,
    Graph,
    Load,
    Node,
    Place,
    Position,
    Product,
    Recurrence,
    Reduce,
    Store,
    Take,
)
from jaxpr2triton.rules.indexing import Indexing, iota_place
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

# Given an equation's number, the equation and the axes in use where its result is wanted: an index for each reduced
# dimension, over axes that are not in use.
Chooser = Callable[[int, Any, frozenset[Axis]], tuple[Index, ...]]


class Crowded(Exception):
    """A value is wanted at so many places that computing it once, into memory, is better."""

    def __init__(self, variable: Any) -> None:
        super().__init__(f"{variable} is wanted at too many places")
        self.variable = variable


@dataclass
class _Walk:
    jaxpr: Any
    choose: Chooser
    unrolled: frozenset[Axis]
    patient: bool
    wanted: dict[Any, dict[Demand, None]] = field(default_factory=dict)
    reads: dict[tuple[Any, Demand], Any] = field(default_factory=dict)
    nodes: dict[Any, Node] = field(default_factory=dict)
    order: list[Node] = field(default_factory=list)

    def want(self, atom: Any, place: Place, guard: Guard) -> tuple[Any, Demand]:
        demand = (place, _needed_guard(atom, place, guard))
        if not isinstance(atom, jex.Literal):
            self.wanted.setdefault(atom, {})[demand] = None
        return atom, demand

    def ask(self, number: int, eqn: Any, demands: Sequence[Demand]) -> None:
        """Record what each wanted element of the equation's result reads."""
        row = TABLE.get(eqn.primitive.name)
        out = eqn.outvars[0]
        if not self.patient and len(demands) > _places_at_most(row):
            raise Crowded(out)
        if isinstance(row, Reduction):
            in_use = frozenset(axis for place, guard in demands for axis in _axes_in(place, guard))
            indices = self.choose(number, eqn, in_use)
            for place, guard in demands:
                self.reads[out, (place, guard)] = self._ask_reduction(eqn, indices, place, guard)
            return
        for place, guard in demands:
            if isinstance(row, Pointwise):
                operands = [self.want(v, _aligned(place, v.aval.shape), guard) for v in eqn.invars]
            elif isinstance(row, Indexing):
                operands = self._ask_pieces(eqn, row, place, guard)
            elif eqn.primitive.name == "iota":
                operands = []
            else:
                raise CompilerBug(f"no rule for `{eqn.primitive.name}` inside a kernel")
            self.reads[out, (place, guard)] = operands

    def _ask_pieces(self, eqn: Any, row: Indexing, place: Place, guard: Guard) -> list[Any]:
        pieces = row.read(eqn, place)
        asked: list[Any] = []
        for number, piece in enumerate(pieces):
            narrowed = conjoin(guard, piece.conditions)
            last = number == len(pieces) - 1
            if narrowed is None and not (last and not asked):
                continue
            source = self.want(eqn.invars[piece.operand], piece.index, narrowed or guard)
            undecided = tuple(c for c in piece.conditions if decide(c) is None)
            asked.append((undecided, source))
            if not undecided:
                break
        return asked

    def _ask_reduction(self, eqn: Any, indices: tuple[Index, ...], place: Place, guard: Guard) -> Any:
        axes = tuple(axis for axis in _ordered_axes(indices))
        unrolled = [axis for axis in axes if axis in self.unrolled]
        over = tuple(axis for axis in axes if axis not in self.unrolled)
        reduced = eqn.params["axes"]
        operands, positions = [], []
        for values in itertools.product(*(range(axis.size) for axis in unrolled)):
            fixed = {axis: constant(value) for axis, value in zip(unrolled, values)}
            chosen = dict(zip(reduced, (substitute(index, fixed) for index in indices)))
            kept = iter(place)
            whole = tuple(chosen[d] if d in chosen else next(kept) for d in range(len(eqn.invars[0].aval.shape)))
            operands.append(self.want(eqn.invars[0], whole, guard))
            positions.append(chosen[reduced[0]])
        return operands, over, tuple(positions)

    # -- forwards ---------------------------------------------------------------------------------------------

    def make(self, key: Any, build: Callable[[int], Node]) -> Node:
        if key not in self.nodes:
            self.nodes[key] = node = build(len(self.order))
            self.order.append(node)
        return self.nodes[key]

    def node(self, atom: Any, demand: Demand) -> Node:
        if isinstance(atom, jex.Literal):
            aval: Any = atom.aval
            dtype = np.dtype(aval.dtype)
            value = np.asarray(atom.val, dtype)
            return self.make((str(dtype), value.tobytes()), lambda n: Constant(n, frozenset(), dtype, value[()]))
        return self.nodes[atom, demand]

    def build(self, eqn: Any, demand: Demand) -> None:
        row = TABLE.get(eqn.primitive.name)
        out = eqn.outvars[0]
        key, reads, dtype = (out, demand), self.reads[out, demand], np.dtype(out.aval.dtype)
        if isinstance(row, Pointwise):
            operands = tuple(self.node(*read) for read in reads)
            self.nodes[key] = self.make(
                ("compute", id(eqn), operands), lambda n: Compute(n, _axes_of(operands), dtype, eqn, operands)
            )
        elif isinstance(row, Reduction):
            asked, over, positions = reads
            operands = tuple(self.node(*read) for read in asked)
            axes = _axes_of(operands) - frozenset(over)
            self.nodes[key] = self.make(
                ("reduce", id(eqn), operands, over), lambda n: Reduce(n, axes, dtype, eqn, operands, over, positions)
            )
        elif isinstance(row, Indexing):
            self.nodes[key] = self._choose_piece(reads)
        else:
            index = iota_place(eqn, demand[0])
            self.nodes[key] = self.make(("at", index, str(dtype)), lambda n: Position(n, index.axes, dtype, index))

    def _choose_piece(self, pieces: Sequence[Any]) -> Node:
        node = self.node(*pieces[-1][1])
        for conditions, read in reversed(pieces[:-1]):
            node = self._choose(conditions, self.node(*read), node)
        return node

    def _choose(self, conditions: tuple[Condition, ...], then: Node, other: Node) -> Node:
        axes = _axes_of((then, other)) | frozenset(a for c in conditions for a in c.index.axes)
        return self.make(
            ("choose", conditions, then, other), lambda n: Choose(n, axes, then.dtype, conditions, then, other)
        )

    def load(self, buffer: int, var: Any, demand: Demand) -> None:
        place, guard = demand
        if not guard and not _inside(place, var.aval.shape):
            raise CompilerBug(f"an operand of shape {var.aval.shape} is read at ({', '.join(map(str, place))})")
        axes = frozenset(_axes_in(place, guard))
        self.nodes[var, demand] = self.make(
            ("load", buffer, demand), lambda n: Load(n, axes, np.dtype(var.aval.dtype), buffer, place, guard)
        )


def walk(
    jaxpr: Any,
    roots: Sequence[tuple[Any, Place]],
    choose: Chooser,
    unrolled: frozenset[Axis] = frozenset(),
    loaded: Mapping[Any, int] | None = None,
    patient: bool = True,
) -> Graph:
    """The graph of everything that `roots` (variable, index) need; a store's `output` is its root's position.

    `loaded` maps further variables, besides the jaxpr's own operands, to buffers that already hold them. A walk that is
    not patient raises `Crowded` when a value would be computed again and again.
    """
    state = _Walk(jaxpr, choose, unrolled, patient)
    buffers = {var: number for number, var in enumerate(jaxpr.invars)} | dict(loaded or {})
    targets = []
    for output, (atom, place) in enumerate(roots):
        free = [axis for axis in _ordered_axes(place) if axis in unrolled]
        for values in itertools.product(*(range(axis.size) for axis in free)):
            fixed = tuple(substitute(i, dict(zip(free, map(constant, values)))) for i in place)
            targets.append((output, fixed, state.want(atom, fixed, ())))
    for number, eqn in reversed(list(enumerate(jaxpr.eqns))):
        for out in eqn.outvars:
            if out in state.wanted and out not in buffers:
                state.ask(number, eqn, tuple(state.wanted[out]))
    for var, buffer in buffers.items():
        for demand in reversed(state.wanted.get(var, {})):
            state.load(buffer, var, demand)
    for eqn in jaxpr.eqns:
        for out in eqn.outvars:
            if out not in buffers:
                for demand in reversed(state.wanted.get(out, {})):
                    state.build(eqn, demand)
    stores = tuple(Store(output, place, state.node(*read)) for output, place, read in targets)
    return Graph(tuple(state.order), stores)


def axes_for_shape(shape: Sequence[int], names: Callable[[int], str]) -> tuple[Axis, ...]:
    return tuple(Axis(names(d), size) for d, size in enumerate(shape))


def place_of(axes: Sequence[Axis]) -> Place:
    return tuple(of_axis(axis) if axis.size != 1 else ZERO for axis in axes)


def _places_at_most(row: Any) -> int:
    """At how many places a value is computed again rather than stored."""
    match row:
        case Reduction():
            return 2
        case Pointwise():
            return 16
        case _:
            return 256  # finding an element elsewhere costs nothing


def _needed_guard(atom: Any, place: Place, guard: Guard) -> Guard:
    """An element that exists for all values of the axes needs no guard."""
    return () if _inside(place, atom.aval.shape) else guard


def _inside(place: Place, shape: Sequence[int]) -> bool:
    return all(index.bounds[0] >= 0 and index.bounds[1] < size for index, size in zip(place, shape, strict=True))


def _aligned(place: Place, shape: Sequence[int]) -> Place:
    """Where a pointwise equation reads an operand: scalars and dimensions of size 1 are stretched."""
    if not shape:
        return ()
    return tuple(ZERO if size == 1 else i for i, size in zip(place, shape, strict=True))


def _axes_in(place: Place, guard: Guard) -> Iterator[Axis]:
    for index in place:
        yield from index.axes
    for condition in guard:
        yield from condition.index.axes


def _ordered_axes(place: Place) -> tuple[Axis, ...]:
    """The axes of a place, each once, outermost first."""
    found: dict[Axis, None] = {}
    for index in place:
        for axis in sorted(index.axes, key=lambda a: (-(index.coefficient(a) or 0), a.name)):
            found[axis] = None
    return tuple(found)


def _axes_of(nodes: Sequence[Node]) -> frozenset[Axis]:
    return frozenset().union(*(node.axes for node in nodes))
