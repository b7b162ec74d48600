"""What is wrong with a graph is found before the emitter trips over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import Graph, Load, Recurrence, Reduce, Store, changed
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.graph.sound import check_graph
from jaxpr2triton.ir.index import Axis, constant, of_axis

SHAPES = [(8, 100)]


@pytest.fixture(scope="module")
def graph() -> Graph:
    program = j2t.transpile(lambda x: jnp.exp(x - x.max(1, keepdims=True)), jax.ShapeDtypeStruct((8, 100), np.float32))
    (plan,) = program.stages["schedule"].plans
    return graph_of(plan)


def axes_of(graph: Graph) -> dict[str, Axis]:
    return {axis.name: axis for node in graph.nodes for axis in node.axes}


def with_node(graph: Graph, kind: type, change: Callable[[Any], Any]) -> Graph:
    """The graph with another node in the place of the first of that kind; nothing refers to it any more."""
    nodes = list(graph.nodes)
    place = next(n for n, node in enumerate(nodes) if isinstance(node, kind))
    nodes[place] = change(nodes[place])
    return replace(graph, nodes=tuple(nodes))


def test_a_graph_as_it_is_made(graph: Graph) -> None:
    check_graph(graph, SHAPES, frozenset((axes_of(graph)["row"],)))


def test_operands_come_first(graph: Graph) -> None:
    backwards = replace(graph, nodes=graph.nodes[::-1])
    with pytest.raises(CompilerBug, match=r"^value 0 is made of something that comes later:\n0: float32"):
        check_graph(backwards, SHAPES)


def test_axes_are_those_of_the_parts(graph: Graph) -> None:
    wrong = with_node(graph, Reduce, lambda node: replace(node, axes=frozenset()))
    with pytest.raises(CompilerBug, match=r"^value 1 varies along row:"):
        check_graph(wrong, SHAPES)


def test_what_is_carried_has_the_axes_of_all_that_it_becomes() -> None:
    fn = lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), x)  # noqa: E731
    (plan,) = j2t.transpile(fn, jax.ShapeDtypeStruct((8,), np.float32)).stages["schedule"].plans
    looped, lane = graph_of(plan), Axis("lane", 8)
    check_graph(looped, [(8,)])
    (loop,) = looped.of_kind(Recurrence)
    beside = changed(loop.starts[0], place=(of_axis(lane),))
    nodes = (beside, *(replace(n, starts=(beside,)) if n is loop else n for n in looped.nodes))
    with pytest.raises(CompilerBug, match="is given what varies along lane, which it does not carry"):
        check_graph(replace(looped, nodes=nodes, stores=()), [(8,)])


def test_nothing_meets_along_the_grid(graph: Graph) -> None:
    with pytest.raises(CompilerBug, match="meets along col, which programs share out"):
        check_graph(graph, SHAPES, frozenset((axes_of(graph)["col"],)))


def test_loads_stay_inside(graph: Graph) -> None:
    with pytest.raises(CompilerBug, match="reads outside of its array"):
        check_graph(graph, [(8, 99)])


def test_a_load_with_a_guard_may_reach_out(graph: Graph) -> None:
    padded = j2t.transpile(lambda x: jnp.pad(x, 1), jax.ShapeDtypeStruct((8,), np.float32))
    (plan,) = padded.stages["schedule"].plans
    load = next(graph_of(plan).of_kind(Load))
    assert load.guard and load.place[0].bounds[0] < 0


def test_what_is_stored_is_computed(graph: Graph) -> None:
    lost = replace(graph, nodes=graph.nodes[:-1])
    with pytest.raises(CompilerBug, match="is stored, but not computed"):
        check_graph(lost, SHAPES)


def test_a_place_tells_elements_apart(graph: Graph) -> None:
    (store,) = graph.stores
    row = of_axis(axes_of(graph)["row"])
    one_column = replace(graph, stores=(Store(store.output, (row, constant(0)), store.value),))
    with pytest.raises(CompilerBug, match="is stored at a place that does not vary along col"):
        check_graph(one_column, SHAPES)
