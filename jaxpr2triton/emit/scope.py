"""The scopes of a kernel: its own, and the bodies of its loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jaxpr2triton.emit.text import Written
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.rules.nodes import (
    Node,
)
from jaxpr2triton.rules.order import LoopKey

Line = str | tuple[str, list[Any]]  # a statement, or a header with the lines below it


@dataclass
class Scope:
    parent: Scope | None
    axis: Axis | None  # the loop that this scope is the body of
    lines: list[Line] = field(default_factory=list)
    known: dict[Node, Written] = field(default_factory=dict)
    checked: set[Axis] = field(default_factory=set)  # axes whose `_ok` variable exists
    said: str | None = None  # the last comment
    key: LoopKey | None = None  # the loop that this scope is the innermost body of
    done: set[LoopKey] = field(default_factory=set)  # the loops written in it
    own: frozenset[Node] = frozenset()  # of a side of a branch: what is computed nowhere else

    @property
    def depth(self) -> int:
        return sum(1 for _ in self.chain()) - 1

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def open_loops(self) -> frozenset[Axis]:
        return frozenset(scope.axis for scope in self.chain() if scope.axis is not None)

    def find(self, node: Node) -> Written | None:
        return next((scope.known[node] for scope in self.chain() if node in scope.known), None)
