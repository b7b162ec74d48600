"""A walk as its helpers see it: each of them uses a part of `graph/walk.py`'s `Walk`, and says here which.

A helper that is given more than it needs cannot be read without the whole walk, and the walk imports its helpers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from jaxpr2triton.graph.chooser import Chooser, Number
from jaxpr2triton.graph.crowds import Crowds
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.nodes import Carried, Demand, Node, Place
from jaxpr2triton.graph.reads import Asked, Filling, Read
from jaxpr2triton.ir.index import Axis, Guard, Index
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Var
from jaxpr2triton.ir.scans import Scan

Dims = tuple[int, ...]
Made = TypeVar("Made", bound=Node)
Some = TypeVar("Some", bound=Atom)


class Numbering(Protocol):
    """Makes indices of integers that the kernel computes."""

    def number(self, atom: Atom, place: Place, limits: tuple[int, int], clamped: bool, guard: Guard = ()) -> Index: ...


class Summing(Protocol):
    """Puts the terms of contractions together."""

    reads: dict[tuple[Var, Demand], Asked]
    nodes: dict[tuple[Var, Demand], Node]
    apart: set[Read]  # what is known to be no sum of contractions along the same axes

    @property
    def summed(self) -> Mapping[Var, Eqn]: ...
    def make(self, key: Hashable, build: Callable[[int], Made]) -> Made: ...
    def term(self, left: Read, right: Read, dtype: np.dtype) -> Node: ...


class Looking(Protocol):
    """Knows what makes each value, what is in memory, and which loops are entered."""

    jaxpr: Jaxpr

    @property
    def makers(self) -> Mapping[Var, int]: ...
    @property
    def buffers(self) -> Mapping[Var, int]: ...
    @property
    def entered(self) -> Mapping[int, LoopWalk]: ...
    def node(self, atom: Atom | Filling, demand: Demand) -> Node: ...


class Making(Summing, Looking, Protocol):
    """Makes nodes of what equations compute."""

    outside: dict[Var, Callable[[Demand], Node]]

    @property
    def numbers(self) -> Mapping[Hashable, tuple[object, Var, Demand]]: ...
    def leave(self, number: int) -> None: ...
    def build(self, eqn: Eqn, demand: Demand) -> None: ...


class Sweeping(Protocol):
    """Asks for all of an axis, and finds one place of what is made along it."""

    choose: Chooser
    reads: dict[tuple[Var, Demand], Asked]
    reduced_axes: set[Axis]

    def hints(self, operand: Atom, dims: Sequence[int]) -> list[Axis | None]: ...
    def want(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]: ...
    def make(self, key: Hashable, build: Callable[[int], Made]) -> Made: ...
    def node(self, atom: Atom | Filling, demand: Demand) -> Node: ...
    def take(self, source: Node, axis: Axis, index: Index) -> Node: ...


class Bringing(Looking, Protocol):
    """Asks for what is dear at one place of its lanes, and finds it at others."""

    choose: Chooser
    steps: frozenset[Axis]
    held: frozenset[Axis]
    waits: dict[Var, float | None]
    reads: dict[tuple[Var, Demand], Asked]

    def want(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]: ...
    def take(self, source: Node, axis: Axis, index: Index) -> Node: ...


class Choosing(Protocol):
    """Chooses along what is written."""

    choose: Chooser


class Crowding(Bringing, Protocol):
    """Tries at how many places values are wanted."""

    crowds: Crowds | None
    reduced_axes: set[Axis]


class Keeping(Protocol):
    """Asks for what is written into a buffer, and reads it."""

    jaxpr: Jaxpr
    choose: Chooser
    path: Number
    steps: frozenset[Axis]
    unrolled: frozenset[Axis]
    reads: dict[tuple[Var, Demand], Asked]
    reduced_axes: set[Axis]

    @property
    def makers(self) -> Mapping[Var, int]: ...
    def demands_on(self, atom: Atom) -> tuple[Demand, ...]: ...
    def hints(self, operand: Atom, dims: Sequence[int]) -> list[Axis | None]: ...
    def crowded(
        self, var: Var, dims: Dims | None = None, beside: Sequence[Var] = (), along: Dims = ()
    ) -> Exception: ...
    def want(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]: ...
    def make(self, key: Hashable, build: Callable[[int], Made]) -> Made: ...
    def node(self, atom: Atom | Filling, demand: Demand) -> Node: ...
    def needs(self, indices: Iterable[Index]) -> tuple[Node, ...]: ...
    def number(self, atom: Atom, place: Place, limits: tuple[int, int], clamped: bool, guard: Guard = ()) -> Index: ...


class Looping(Keeping, Crowding, Protocol):
    """Enters the bodies of loops, and leaves them."""

    wanted: dict[Var, dict[Demand, None]]
    outside: dict[Var, Callable[[Demand], Node]]

    @property
    def entered(self) -> Mapping[int, LoopWalk]: ...
    @property
    def buffers(self) -> Mapping[Var, int]: ...
    @property
    def numbers(self) -> Mapping[Hashable, tuple[object, Var, Demand]]: ...
    def facts(self, scan: Scan) -> LoopFacts: ...
    def inside(
        self, scan: Scan, number: Number, step: Index, facts: LoopFacts, binding: Mapping[Kind, Index]
    ) -> Looping: ...
    def reading(self, atom: Some, place: Place, guard: Guard) -> tuple[Some, Demand]: ...
    def backwards(self, roots: Sequence[tuple[Atom, Place]]) -> Sequence[Read]: ...
    def forwards(self) -> None: ...
    def chosen_from(self, pieces: Sequence[tuple[Guard, Node]]) -> Node: ...
    def take(self, source: Node, axis: Axis, index: Index) -> Node: ...
    def look_up(self, source: Node, at: Mapping[Axis, Index]) -> Node: ...


@dataclass
class LoopWalk:
    """One scan equation inside a walk: where its step and its classes run, and the walk through its body."""

    scan: Scan
    step: Index  # the index of the step, as xs and ys see it
    held: frozenset[Axis]
    bound: frozenset[Axis]
    live: list[int]  # positions of the carried values that somebody needs
    inner: Looping
    places: dict[int, list[Place]] = field(default_factory=dict)  # carried position → every place, unrolled ones apart
    starts: list[Read] = field(default_factory=list)  # what the outer walk reads for the starts, in order
    leaves: dict[tuple[int, Place], Carried] = field(default_factory=dict)  # of each position and place
