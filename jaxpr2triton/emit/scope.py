"""The scopes of a kernel: its own, and the bodies of its loops."""

from __future__ import annotations

import ast
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jaxpr2triton.emit.axes import Loop
from jaxpr2triton.emit.text import Tile, Written
from jaxpr2triton.graph.nodes import Node
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.ir.index import Axis, Condition, Index
from jaxpr2triton.ir.tree import Body, Part, assign

Limits = tuple[Node, int, int]  # a number, and the least and the largest it may be


@dataclass
class Scope:
    parent: Scope | None
    axis: Axis | None  # the loop that this scope is the body of
    lines: Body = field(default_factory=list)
    places: dict[str, ast.Assign] = field(default_factory=dict)  # the last line that gives each axis its places
    known: dict[Node, Written] = field(default_factory=dict)
    clamped: dict[Limits, str] = field(default_factory=dict)  # numbers that were brought into range
    once: dict[tuple[str, Node], ast.expr] = field(default_factory=dict)  # what is made of numbers that many read
    lanes: dict[tuple[Index, int, Tile], ast.expr] = field(default_factory=dict)  # lanes that tiles are read at
    scans: dict[Hashable, ast.expr] = field(default_factory=dict)  # associative scans of several parts → their name
    folds: dict[Hashable, Sequence[ast.expr]] = field(default_factory=dict)  # reductions of several parts: results
    early: dict[Node, ast.expr] = field(default_factory=dict)  # what was read at the beginning, before it is cast
    checked: set[Axis] = field(default_factory=set)  # axes whose `_ok` variable exists
    named: dict[Condition, str] = field(default_factory=dict)  # what holds for several values, as a variable
    said: str | None = None  # the last comment
    key: LoopKey | None = None  # the loop that this scope is the innermost body of
    done: set[LoopKey] = field(default_factory=set)  # the loops written in it
    loop: Loop | None = None  # whose body this is
    own: frozenset[Node] = frozenset()  # of a side of a branch: what is computed nowhere else

    @cached_property
    def depth(self) -> int:
        """How many loops are around. A side of a branch has no names of its own: Triton wants what is assigned on both
        sides to be of one type."""
        return 0 if self.parent is None else self.parent.depth + (self.axis is not None)

    @cached_property
    def open_loops(self) -> frozenset[Axis]:
        around = frozenset() if self.parent is None else self.parent.open_loops
        return around if self.axis is None else around | {self.axis}

    @property
    def around(self) -> Scope:
        """Every loop lies in the kernel's own scope."""
        assert self.parent is not None
        return self.parent

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def write(self, targets: str | Sequence[str], value: Part) -> None:
        """name = value"""
        self.lines.append(assign(targets, value))

    def give_places(self, lines: Sequence[ast.Assign]) -> None:
        """The lines that say where a program, or a step, is."""
        self.lines += lines
        self.places |= {target.id: line for line in lines for target in line.targets if isinstance(target, ast.Name)}

    def write_beside(self, axes: Collection[Axis], line: ast.Assign) -> None:
        """A line that stands behind those by which the axes have their places."""
        behind = [self.lines.index(self.places[axis.name]) for axis in axes if axis.name in self.places]
        self.lines.insert(1 + max(behind, default=-1), line)

    def find(self, node: Node) -> Written | None:
        scope: Scope | None = self
        while scope is not None:
            written = scope.known.get(node)
            if written is not None:
                return written
            scope = scope.parent
        return None
