"""What a walk asks about the axes that reductions and loops run along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.nodes import Place
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Atom
from jaxpr2triton.ir.scans import Scan

Number = tuple[int, ...]  # of an equation: its position, after the positions of the loops around it
Dims = Sequence[int]
Axes = frozenset[Axis]
Hints = Sequence[Axis | None]  # of each dimension
Kinds = Sequence[Kind]

STEP = ("step", 0)  # where a hint says which axis should count the steps


class Chooser(Protocol):
    """Says which axes reductions and loops run along."""

    state: set[Axis]  # what carried values run along, so far
    final: set[Axis]  # what the results of loops are wanted along, so far: a step of another loop would repeat those

    @property
    def steps(self) -> frozenset[Axis]:
        """The axes that count the steps of loops, so far."""

    def reduction(self, number: Number, operand: Atom, dims: Dims, in_use: Axes, hints: Hints, /) -> Place:
        """An index for each of these dimensions of the operand, over axes that are not in use; `hints` suit best."""

    def stacked(
        self, number: Number, operand: Atom, dims: Dims, in_use: Axes, hints: Hints, loop: tuple[Number, Scan], /
    ) -> Place:
        """The same for what a loop puts out, the first dimension of which counts its steps: that is settled then."""

    def loop(
        self, number: Number, scan: Scan, facts: LoopFacts, kinds: Kinds, hints: Mapping[Kind, Axis], in_use: Axes, /
    ) -> Place:
        """An index for the step, and one for each of these kinds of what is carried; `hints` would suit best."""

    def inside(self, facts: LoopFacts, binding: Mapping[Kind, Index]) -> Chooser:
        """The chooser for the loop's body."""
