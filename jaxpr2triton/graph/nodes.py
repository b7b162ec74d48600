"""The values of a kernel, each at one place: what a walk by demand finds, and what the emitter writes."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TypeVar, overload

import numpy as np

from jaxpr2triton.ir.index import Axis, Condition, Guard, Index, plain_axis
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.scanned import Combination

Place = tuple[Index, ...]
Demand = tuple[Place, Guard]


class Remembered(tuple[Place, Guard]):
    """A demand that hashes the parts of its place and of its guard once: it is looked up again and again."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = super().__hash__()
            return self._hash


One = TypeVar("One", bound="Node")
Other = TypeVar("Other", bound="Node")


@dataclass(frozen=True, eq=False)
class Node:
    """One value of the kernel at one place; `axes` are the axes it varies along."""

    number: int
    axes: frozenset[Axis]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Load(Node):
    buffer: int  # which operand of the region
    place: Place
    guard: Guard
    needs: tuple[Node, ...] = ()  # the computed numbers in the place


@dataclass(frozen=True, eq=False)
class Constant(Node):
    value: np.generic


@dataclass(frozen=True, eq=False)
class Position(Node):
    index: Index  # an index as a value
    needs: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Compute(Node):
    eqn: Eqn
    operands: tuple[Node, ...]
    place: Place = ()  # which element of the result, or one of those; a name may depend on it


@dataclass(frozen=True, eq=False)
class Choose(Node):
    conditions: tuple[Condition, ...]
    then: Node
    other: Node
    needs: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class Collected(Node):
    """What is there only when its operands (several where an axis is unrolled) are, all along the axes `over`."""

    eqn: Eqn
    operands: tuple[Node, ...]
    over: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Reduce(Collected):
    """The operands combined, then collapsed along `over`."""

    positions: tuple[Index, ...]  # of the operands along the reduced dimension, for argmax
    place: Place = ()  # as of `Compute`
    total: Eqn | None = None  # what adds up several sums, where this is one sum of all of their terms

    @property
    def made_by(self) -> Eqn:
        """The equation whose result it is."""
        return self.total or self.eqn

    @property
    def combined_by(self) -> Combination | None:
        """The function that combines elements of several parts, if the equation has one."""
        return self.eqn.params.get("combine")

    @property
    def operations(self) -> int:
        """Of all operands, at each place along the axes."""
        each = 1 if self.combined_by is None else len(self.combined_by.primitives)
        return len(self.operands) * each


@dataclass(frozen=True, eq=False)
class Swept(Collected):
    """What varies along the axis `over` and needs all of the operand along it: a running sum, places in an order."""

    place: Place = ()  # as of `Compute`, all along the axis

    @property
    def axis(self) -> Axis:
        return self.over[0]


@dataclass(frozen=True, eq=False)
class Keep(Collected):
    """The operands, written into a buffer of the kernel's own, each at its place."""

    places: tuple[Place, ...]
    slot: tuple[int, ...]  # which buffer, by the number of the equation
    order: tuple[int, ...] = ()  # in which the dimensions lie, if not as they are
    again: frozenset[Axis] = frozenset()  # steps in each of which it is written again, the same or not

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the buffer, as it lies."""
        shape: tuple[int, ...] = self.eqn.outvars[0].aval.shape
        return tuple(shape[d] for d in self.order) or shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Accumulated(Keep):
    """What meets in such a buffer at computed places, after it has begun: added to what is there, or compared."""

    begun: Keep
    guards: tuple[Guard, ...]  # when each operand lies inside
    needs: tuple[Node, ...]  # the computed numbers in places and guards
    op: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange(Keep):
    """What programs that run at once write for each other: each its part along the axes `shared`, which are `over`."""

    shared: frozenset[Axis]
    needs: tuple[Node, ...]  # the number in its places that says which of two buffers it is

    @property
    def shape(self) -> tuple[int, ...]:
        lies = (2, *self.eqn.outvars[0].aval.shape)
        return tuple(lies[d] for d in self.order) or lies


@dataclass(frozen=True, eq=False)
class Kept(Node):
    """What is read of such a buffer."""

    keep: Keep
    place: Place
    guard: Guard
    needs: tuple[Node, ...] = ()  # the computed numbers in the place


@dataclass(frozen=True, eq=False)
class Product(Node):
    """One term of a contraction."""

    operands: tuple[Node, Node]


@dataclass(frozen=True, eq=False)
class Element(Node):
    """What a reduction combines, where that has several parts: a value and its place, a weight and a mean."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Take(Node):
    """The element of `source` at another place along one of its axes."""

    source: Node
    axis: Axis
    index: Index
    needs: tuple[Node, ...] = ()

    @property
    def at(self) -> tuple[tuple[Axis, Index], ...]:
        return ((self.axis, self.index),)


@dataclass(frozen=True, eq=False)
class Lookup(Node):
    """The elements of `source` at other places along several of its axes at once: `c[i, j]`, `c.T`."""

    source: Node
    at: tuple[tuple[Axis, Index], ...]
    needs: tuple[Node, ...] = ()

    @property
    def moved(self) -> frozenset[Axis]:
        """The axes of the source that are looked up along."""
        return frozenset(axis for axis, _ in self.at)

    @property
    def turned(self) -> Mapping[Axis, Axis]:
        """The axes that have changed places, if nothing else is done: a carried matrix, read as its transpose."""
        renamed = {axis: other for axis, index in self.at if (other := plain_axis(index)) is not None}
        return renamed if renamed.keys() == self.moved == frozenset(renamed.values()) else {}


@dataclass(frozen=True, eq=False)
class Carried(Node):
    """What a loop carries from step to step, as one step finds it."""

    step: Axis


@dataclass(frozen=True, eq=False)
class Recurrence(Node):
    """A loop that carries values: what they are before it, during a step, and after that step."""

    eqn: Eqn
    step: Axis
    held: frozenset[Axis]  # axes that one program has to have whole
    bound: frozenset[Axis]  # axes along which the loop runs once for each index
    reverse: bool
    conditional: bool  # the first carried value says whether there is another step
    starts: tuple[Node, ...]
    carried: tuple[Carried, ...]
    nexts: tuple[Node, ...]

    @property
    def seldom(self) -> bool:
        """Whether it hardly ever has a step."""
        return bool(self.eqn.params.get("seldom"))


@dataclass(frozen=True, eq=False)
class Final(Node):
    """What a loop has carried to its end."""

    recurrence: Recurrence
    position: int


@dataclass(frozen=True, eq=False)
class Store:
    output: int
    place: Place
    value: Node


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]  # operands before those that use them
    stores: tuple[Store, ...]
    computed: Mapping[Hashable, Node] = field(default_factory=dict)  # numbers in indices, by key

    @overload
    def of_kind(self, kind: type[One]) -> Iterator[One]: ...
    @overload
    def of_kind(self, kind: tuple[type[One], type[Other]]) -> Iterator[One | Other]: ...
    def of_kind(self, kind: type[Node] | tuple[type[Node], ...]) -> Iterator[Node]:
        there = [each for each in self._by_kind if issubclass(each, kind)]
        if len(there) <= 1:
            return itertools.chain.from_iterable(map(self._by_kind.__getitem__, there))
        return (node for node in self.nodes if isinstance(node, kind))

    @cached_property
    def _by_kind(self) -> Mapping[type[Node], Sequence[Node]]:
        found: dict[type[Node], list[Node]] = {}
        for node in self.nodes:
            found.setdefault(type(node), []).append(node)
        return found

    def conditions(self) -> Iterator[Condition]:
        """Of all choices and of all that is read, once for each of them."""
        for node in self.of_kind(Choose):
            yield from node.conditions
        for read in self.of_kind((Load, Kept)):
            yield from read.guard
        for met in self.of_kind(Accumulated):
            for guard in met.guards:
                yield from guard


def operands_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Accumulated():
            return *node.operands, *node.needs, node.begun
        case Exchange():
            return *node.operands, *node.needs
        case Compute() | Collected() | Product() | Element():
            return node.operands
        case Choose():
            return node.then, node.other, *node.needs
        case Take() | Lookup():
            return node.source, *node.needs
        case Position() | Load():
            return node.needs
        case Kept():
            return node.keep, *node.needs
        case Recurrence():
            return node.starts + node.nexts
        case Final():
            return (node.recurrence,)
        case _:
            return ()


def axes_in(place: Place, guard: Guard) -> Iterator[Axis]:
    for index in place:
        yield from index.axes
    for condition in guard:
        yield from condition.index.axes


def axes_of(nodes: Iterable[Node]) -> frozenset[Axis]:
    return frozenset().union(*(node.axes for node in nodes))


def varies_along(node: Node) -> frozenset[Axis]:
    """The axes that a value varies along, by what it is made of."""
    parts = axes_of(operands_of(node))
    match node:
        case Load() | Kept():
            return parts | frozenset(axes_in(node.place, node.guard))
        case Position():
            return parts | node.index.axes
        case Choose():
            return parts | frozenset(axes_in((), node.conditions))
        case Take():
            return (node.source.axes - {node.axis}) | node.index.axes | axes_of(node.needs)
        case Lookup():
            places = frozenset(axis for _, index in node.at for axis in index.axes)
            return (node.source.axes - node.moved) | places | axes_of(node.needs)
        case Recurrence():
            return axes_of(node.carried) - {node.step}
        case Final():
            return node.recurrence.carried[node.position].axes - {node.recurrence.step}
        case Carried():
            return node.axes | {node.step}
        case Swept():
            return parts | {node.axis}
        case Keep():
            own = [axis for place in node.places for axis in axes_in(place, ())]
            if isinstance(node, Accumulated):
                own += [axis for guard in node.guards for axis in axes_in((), guard)]
            return (parts | node.again | frozenset(own)) - frozenset(node.over)
        case Collected():
            return parts - frozenset(node.over)
        case _:
            return parts


def with_operands(node: Node, standing: Mapping[Node, Node]) -> Node:
    """The node with other nodes in the place of those that it refers to; it varies along what these do."""
    changes: dict[str, Node | tuple[Node, ...]] = {}
    is_same = True
    for name in _references(type(node)):
        value = getattr(node, name)
        now = standing[value] if isinstance(value, Node) else tuple(standing[each] for each in value)
        if now:
            changes[name] = now
            is_same &= now is value or (isinstance(now, tuple) and all(map(operator.is_, now, value)))
    return node if is_same else changed(node, **changes)


_REFERENCES: dict[type[Node], tuple[str, ...]] = {}


def _references(kind: type[Node]) -> tuple[str, ...]:
    """The fields of a kind of node that hold other nodes."""
    if kind not in _REFERENCES:
        of_nodes = re.compile(r"\b(Node|Keep|Recurrence|Carried)\b")
        _REFERENCES[kind] = tuple(each.name for each in fields(kind) if of_nodes.search(str(each.type)))
    return _REFERENCES[kind]


def changed(node: One, **parts: object) -> One:
    """The node with other parts: what it varies along follows from these, whatever it was before."""
    made = replace(node, **parts)  # type: ignore[arg-type]  # their names are those of nodes
    axes = varies_along(made)
    return made if axes == made.axes else replace(made, axes=axes)
