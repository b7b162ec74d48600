"""The graph of a plan: the walk of a region once more, along the axes that have been decided on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.facts import Kind, LoopFacts
from jaxpr2triton.graph.joint_sums import join_sums
from jaxpr2triton.graph.laid_out import lay_out
from jaxpr2triton.graph.nodes import Graph, Recurrence
from jaxpr2triton.graph.renamed import keep_lanes, share_renamed
from jaxpr2triton.graph.simplify import simplify
from jaxpr2triton.graph.sound import check_graph
from jaxpr2triton.graph.walk import walk
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Atom
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import stored_by
from jaxpr2triton.ir.scans import Scan


def graph_of(plan: Plan) -> Graph:
    """What the kernel of a plan computes."""
    jaxpr = plan.jaxpr.jaxpr
    lanes = frozenset(planned.axis for planned in plan.axes if planned.is_tile)
    graph = simplify(walk(jaxpr, list(zip(stored_by(jaxpr), plan.places)), Planned(plan), plan.unrolled), lanes)
    if any(True for _ in graph.of_kind(Recurrence)):
        graph = simplify(keep_lanes(share_renamed(graph, _alike(plan)), _streamed(plan)), lanes)
    graph = join_sums(graph)
    graph = lay_out(graph, {p.axis: p.block for p in plan.axes if p.is_tile})
    shared = frozenset(planned.axis for planned in plan.axes if planned.role is Role.GRID)
    check_graph(graph, [tuple(var.aval.shape) for var in jaxpr.invars], shared)
    return graph


@dataclass
class Planned:
    """Chooses the axes that the plan says."""

    plan: Plan
    steps: frozenset[Axis] = frozenset()
    state: set[Axis] = field(default_factory=set)
    final: set[Axis] = field(default_factory=set)

    def reduction(
        self,
        number: Number,
        operand: Atom,
        dims: Sequence[int],
        in_use: frozenset[Axis],
        hints: Sequence[Axis | None],
    ) -> tuple[Index, ...]:
        indices = self.plan.reduced[number]
        if any(index.axes & in_use for index in indices):
            raise CompilerBug(f"kernel {self.plan.name} reduces along an axis that is in use")
        return indices

    def stacked(
        self,
        number: Number,
        operand: Atom,
        dims: Sequence[int],
        in_use: frozenset[Axis],
        hints: Sequence[Axis | None],
        loop: tuple[Number, Scan],
    ) -> tuple[Index, ...]:
        return self.plan.reduced[number]

    def loop(
        self,
        number: Number,
        scan: Scan,
        facts: LoopFacts,
        kinds: Sequence[Kind],
        hints: Mapping[Kind, Axis],
        in_use: frozenset[Axis],
    ) -> tuple[Index, ...]:
        return self.plan.reduced[number]

    def inside(self, facts: LoopFacts, binding: Mapping[Kind, Index]) -> Planned:
        return self


def _alike(plan: Plan) -> list[frozenset[Axis]]:
    """The axes of lanes that are exchangeable."""
    groups: dict[tuple[int, int], set[Axis]] = {}
    for planned in plan.axes:
        if planned.role is Role.LANE and planned.block > 1:
            groups.setdefault((planned.axis.size, planned.block), set()).add(planned.axis)
    return [frozenset(group) for group in groups.values() if len(group) > 1]


def _streamed(plan: Plan) -> frozenset[Axis]:
    """The axes that are walked through block by block."""
    return frozenset(p.axis for p in plan.axes if p.role is Role.LOOP and p.block > 1)
