"""The scopes of a kernel: its own, and the bodies of its loops."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxpr2triton.emit.text import Written
from jaxpr2triton.graph.nodes import Node
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.ir.index import Axis, Condition

Limits = tuple[Node, int, int]  # a number, and the least and the largest it may be
Line = str | tuple[str, list[Any]]  # a statement, or a header with the lines below it


@dataclass
class Scope:
    parent: Scope | None
    axis: Axis | None  # the loop that this scope is the body of
    lines: list[Line] = field(default_factory=list)
    known: dict[Node, Written] = field(default_factory=dict)
    clamped: dict[Limits, str] = field(default_factory=dict)  # numbers that were brought into range
    lanes: dict[str, str] = field(default_factory=dict)  # lanes that tiles are read at: the text → its name
    scans: dict[Hashable, str] = field(default_factory=dict)  # associative scans of several parts → their name
    folds: dict[Hashable, list[str]] = field(default_factory=dict)  # reductions of several parts → their results
    early: dict[Node, str] = field(default_factory=dict)  # what was read at the beginning, before it is cast
    checked: set[Axis] = field(default_factory=set)  # axes whose `_ok` variable exists
    named: dict[Condition, str] = field(default_factory=dict)  # what holds for several values, as a variable
    said: str | None = None  # the last comment
    key: LoopKey | None = None  # the loop that this scope is the innermost body of
    done: set[LoopKey] = field(default_factory=set)  # the loops written in it
    header: str = ""  # of the loop
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

    def find(self, node: Node) -> Written | None:
        scope: Scope | None = self
        while scope is not None:
            written = scope.known.get(node)
            if written is not None:
                return written
            scope = scope.parent
        return None
