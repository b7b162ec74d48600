"""The graph of a kernel: its region along the axes that have been decided on, made once.

The cost model prices this graph, and the emitter writes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.chooser import Axes, Dims, Hints, Number
from jaxpr2triton.graph.exchange import is_spread_out, without_unread
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.joint_sums import join_sums
from jaxpr2triton.graph.laid_out import lay_out
from jaxpr2triton.graph.nodes import Graph, Keep, Place, Product, Recurrence, axes_of
from jaxpr2triton.graph.renamed import keep_lanes, share_renamed
from jaxpr2triton.graph.simplify import simplify
from jaxpr2triton.graph.sound import check_graph
from jaxpr2triton.graph.walk import walk
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Atom, Jaxpr
from jaxpr2triton.ir.plan import Plan, PlannedAxis
from jaxpr2triton.ir.region import stored_by


def graph_of(plan: Plan) -> Graph:
    """What the kernel of a plan computes: what was priced, with buffers laid out for its blocks; it is checked."""
    graph = lay_out(plan.graph, {p.axis: p.block for p in plan.axes if p.is_tile})
    shared = frozenset(planned.axis for planned in plan.axes if planned.role.is_parallel)
    check_graph(graph, [tuple(var.aval.shape) for var in plan.jaxpr.jaxpr.invars], shared)
    return graph


@dataclass(eq=False)
class Lowering:
    """A region along the axes of one kernel: walked once, and simplified once for each set of roles that matters.

    Blocks make no difference, but for what `lay_out` does at the end.
    """

    name: str
    jaxpr: Jaxpr
    places: Sequence[Place]  # where each output is stored
    reduced: Mapping[Number, tuple[Index, ...]]  # what a reduction or a loop runs along
    unrolled: frozenset[Axis]
    _simple: dict[frozenset[Axis], Graph] = field(default_factory=dict)  # by the lanes that end one by one
    _known: dict[Hashable, Graph] = field(default_factory=dict)

    @cached_property
    def _walked(self) -> Graph:
        outputs = list(zip(stored_by(self.jaxpr), self.places))
        return walk(self.jaxpr, outputs, Planned(self.name, self.reduced), self.unrolled)

    @cached_property
    def _flags(self) -> frozenset[Axis]:
        """The axes of what says whether a loop goes on."""
        return axes_of(loop.carried[0] for loop in self._walked.of_kind(Recurrence) if loop.conditional)

    @cached_property
    def _kept_over(self) -> frozenset[Axis]:
        return frozenset(axis for keep in self._walked.of_kind(Keep) for axis in keep.over)

    def along(self, axes: Sequence[PlannedAxis]) -> Graph:
        """The graph with these roles."""
        flags = frozenset(each.axis for each in axes if each.is_tile and each.axis in self._flags)
        alike, streamed = _alike(axes), _streamed(axes) & self._kept_over
        key = (flags, tuple(alike), streamed)
        if key not in self._known:
            graph = self._simple.get(flags) or self._simple.setdefault(flags, simplify(self._walked, flags))
            has_steps = any(True for _ in graph.of_kind(Recurrence))
            if (alike or streamed) and (has_steps or any(True for _ in graph.of_kind(Product))):
                graph = simplify(keep_lanes(share_renamed(graph, alike, has_steps), streamed), flags)
            self._known[key] = join_sums(without_unread(graph) if is_spread_out(graph) else graph)
        return self._known[key]


@dataclass
class Planned:
    """Chooses the axes that have been decided on."""

    name: str  # of the kernel
    reduced: Mapping[Number, Place]
    steps: frozenset[Axis] = frozenset()
    state: set[Axis] = field(default_factory=set)
    final: set[Axis] = field(default_factory=set)

    def reduction(self, number: Number, operand: Atom, dims: Dims, in_use: Axes, hints: Hints) -> Place:
        indices = self.reduced[number]
        if any(index.axes & in_use for index in indices):
            raise CompilerBug(f"kernel {self.name} reduces along an axis that is in use")
        return indices

    def stacked(self, number: Number, *_: object) -> Place:
        return self.reduced[number]

    loop = stacked

    def inside(self, facts: LoopFacts, binding: Mapping[Kind, Index]) -> Planned:
        return self


def _alike(axes: Iterable[PlannedAxis]) -> list[frozenset[Axis]]:
    """The axes of lanes that are exchangeable."""
    groups: dict[tuple[int, int], set[Axis]] = {}
    for planned in axes:
        if planned.role.is_vectorized and planned.block > 1:
            groups.setdefault((planned.axis.size, planned.block), set()).add(planned.axis)
    return [frozenset(group) for group in groups.values() if len(group) > 1]


def _streamed(axes: Iterable[PlannedAxis]) -> frozenset[Axis]:
    """The axes that are walked through block by block."""
    return frozenset(p.axis for p in axes if p.role.is_sequential and p.block > 1)
