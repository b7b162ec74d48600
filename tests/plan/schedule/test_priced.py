"""The graph that is priced is the graph that is emitted, node for node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.graph.nodes import Graph, Node
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.pipeline import stages
from jaxpr2triton.plan.schedule import schedule
from tests.loop_programs import PROGRAMS

CASES = [(each, kind) for each in PROGRAMS for kind in ("forward", "gradient") if kind == "forward" or each.grad]


def signature(nodes: Sequence[Node]) -> list[tuple[Any, ...]]:
    numbers = {node: number for number, node in enumerate(nodes)}

    def of(node: Node) -> tuple[Any, ...]:
        operands = getattr(node, "operands", ())
        read = tuple(numbers[each] for each in operands)
        return type(node).__name__, id(getattr(node, "eqn", None)), node.axes, node.dtype, read

    return [of(node) for node in nodes]


@pytest.mark.parametrize(("program", "kind"), CASES, ids=[f"{each.name}-{kind}" for each, kind in CASES])
def test_what_is_priced_is_emitted(program: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    priced: dict[int, Graph] = {}  # alive, so that no other graph has the same id
    emitted: list[Graph] = []

    def pricing(graph: Graph, *args: Any) -> Any:
        priced[id(graph)] = graph
        return work_of(graph, *args)

    def emitting(plan: Plan, graph: Graph) -> Any:
        if plan.choice is not None:  # a kernel with loops: the others have one schedule
            assert id(plan.graph) in priced
            assert signature(graph.nodes) == signature(plan.graph.nodes)
            emitted.append(graph)
        return emit(plan, graph)

    work_of = schedule.work_of
    monkeypatch.setattr(schedule, "work_of", pricing)
    monkeypatch.setattr(stages, "emit", emitting)
    with program.precision():
        made = j2t.transpile(
            program.fn if kind == "forward" else program.gradient(), *program.args(np.random.default_rng(0))
        )
    assert emitted or not any("for " in kernel.source for kernel in made.kernels)
