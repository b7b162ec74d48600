"""Nodes of a jaxpr: each is made once, for all who read it.

`Builder` makes nodes of nodes, and finds those of literals, of what is in memory and of what lies outside of a loop's
body. What an equation computes is made by `graph/build_nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import guards
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.demands import Demands, EnteredLoop, numbers_in
from jaxpr2triton.graph.dynamic import fill_value
from jaxpr2triton.graph.neutral import is_zero
from jaxpr2triton.graph.nodes import (
    Carried,
    Choose,
    Constant,
    Demand,
    Element,
    Load,
    Lookup,
    Node,
    Place,
    Product,
    Reduce,
    Take,
    axes_in,
    axes_of,
)
from jaxpr2triton.graph.reads import Combined, Filling, Read, Terms
from jaxpr2triton.ir.index import Axis, Condition, Guard, Index, conjoin
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.rules.rows import ADDED

Made = TypeVar("Made", bound=Node)


@dataclass
class Builder:
    """The nodes of one jaxpr: the kernel's own, or the body of a loop in it."""

    demands: Demands
    compute: Callable[[Builder, Var, Demand], None]  # makes the node of what an equation computes
    made: dict[Hashable, Node] = field(default_factory=dict)  # in order: those of the kernel and of all loops in it
    computed: dict[Hashable, Node] = field(default_factory=dict)  # the numbers in their places
    builders: dict[Number, Builder] = field(default_factory=dict)  # by their paths, where there are loops
    nodes: dict[tuple[Var, Demand], Node] = field(default_factory=dict)
    outside: dict[Var, Callable[[Demand], Node]] = field(default_factory=dict)  # a body's operands, and what loops give
    loops: dict[int, LoopNodes] = field(default_factory=dict)  # by their positions
    left: set[int] = field(default_factory=set)  # the loops that are over
    apart: set[Read] = field(default_factory=set)  # what is known to be no sum of contractions along the same axes

    def inside(self, loop: EnteredLoop) -> Builder:
        """The builder of a loop's body."""
        return Builder(loop.inner, self.compute, self.made, self.computed, self.builders)

    def make(self, key: Hashable, build: Callable[[int], Made]) -> Made:
        """The node of this key, which is of one kind for each key; built if there is none yet."""
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = build(len(self.made))
        return cast(Made, found)

    def node(self, atom: Atom | Filling, demand: Demand) -> Node:
        if isinstance(atom, Filling):
            fill = fill_value(atom.eqn)
            key = (str(fill.dtype), fill.tobytes())
            return self.make(key, lambda n: Constant(n, frozenset(), fill.dtype, fill))
        if isinstance(atom, Literal):
            dtype = np.dtype(atom.aval.dtype)
            value = cast(np.generic, np.asarray(atom.val, dtype)[()])
            return self.make((str(dtype), value.tobytes()), lambda n: Constant(n, frozenset(), dtype, value))
        read = atom, demand
        found = self.nodes.get(read)
        if found is None:
            if atom in self.outside:
                self.nodes[read] = self.outside[atom](demand)
            elif atom in self.demands.buffers:
                self.nodes[read] = self.load(self.demands.buffers[atom], atom, demand)
            else:
                self.compute(self, atom, demand)
            found = self.nodes[read]
        return found

    def needs(self, indices: Iterable[Index]) -> tuple[Node, ...]:
        """The nodes of the computed numbers in these indices."""
        found: dict[Hashable, Node] = {}
        for key in numbers_in(indices):
            path, atom, demand = key
            builder = self if path == self.demands.path else self.builders[path]
            found[key] = builder.node(atom, demand)
        self.computed.update(found)
        return tuple(found.values())

    def reduced(
        self, eqn: Eqn, operands: tuple[Node, ...], asked: Combined | Terms, dtype: np.dtype, place: Place
    ) -> Node:
        over, positions = asked.over, asked.positions
        if not over and len(operands) == 1 and eqn.primitive.name in ADDED and operands[0].dtype == dtype:
            return operands[0]  # of an outer product each element is one term
        axes = axes_of(operands) - frozenset(over)
        return self.make(
            ("reduce", id(eqn), operands, over), lambda n: Reduce(n, axes, dtype, eqn, operands, over, positions, place)
        )

    def term(self, left: Read, right: Read, dtype: np.dtype) -> Node:
        pair = self.node(*left), self.node(*right)
        return self.make(("term", pair, str(dtype)), lambda n: Product(n, axes_of(pair), dtype, pair))

    def element(self, reads: Sequence[Read]) -> Node:
        """What a reduction combines: a value, or several parts of one."""
        parts = tuple(self.node(*read) for read in reads)
        if len(parts) == 1:
            return parts[0]
        return self.make(("element", parts), lambda n: Element(n, axes_of(parts), parts[0].dtype, parts))

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

    def _choose(self, conditions: tuple[Condition, ...], then: Node, other: Node) -> Node:
        if isinstance(then, Load) and is_zero(other) and conjoin(then.guard, conditions) == then.guard:
            return then  # elsewhere zeros are loaded
        needs = self.needs([condition.index for condition in conditions])
        axes = axes_of((then, other, *needs)) | frozenset(a for c in conditions for a in c.index.axes)
        return self.make(
            ("choose", conditions, then, other), lambda n: Choose(n, axes, then.dtype, conditions, then, other, needs)
        )

    def load(self, buffer: int, var: Var, demand: Demand) -> Node:
        place, guard = demand
        if not guard and not guards.inside(place, var.aval.shape):
            raise CompilerBug(f"an operand of shape {var.aval.shape} is read at ({', '.join(map(str, place))})")
        needs = self.needs([*place, *(condition.index for condition in guard)])
        axes = frozenset(axes_in(place, guard)) | axes_of(needs)
        return self.make(
            ("load", buffer, demand), lambda n: Load(n, axes, np.dtype(var.aval.dtype), buffer, place, guard, needs)
        )


@dataclass
class LoopNodes:
    """A loop whose carried values have nodes, and the builder of its body."""

    loop: EnteredLoop
    inner: Builder
    leaves: dict[tuple[int, Place], Carried] = field(default_factory=dict)  # of each position and place
