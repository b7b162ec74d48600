"""What is made of nothing but lanes of one tile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.graph.moved import Either, Lane, along, moved_in, shifts, within
from jaxpr2triton.graph.nodes import Carried, Choose, Compute, Graph, Node, Store, Take, axes_of
from jaxpr2triton.graph.simplify import simplify
from jaxpr2triton.ir.index import Axis, Condition, Index, constant, of_axis

ROW, COL, STEP = Axis("row", 8), Axis("col", 4), Axis("t", 5)
F32 = np.dtype(np.float32)
SIN, ADD = (jax.make_jaxpr(f)(1.0, 2.0).eqns[0] for f in (lambda a, b: jnp.sin(a), lambda a, b: a + b))
TILE = Carried(0, frozenset({ROW, COL, STEP}), F32, STEP)
IS_FIRST = (Condition(of_axis(ROW), 0, 1),)
BEFORE, AFTER = Index(-1, ((ROW, 1),)), Index(1, ((COL, 1),))


def take(number: int, source: Node, axis: Axis, index: Index) -> Take:
    return Take(number, (source.axes - {axis}) | index.axes, F32, source, axis, index)


def choose(number: int, then: Node, other: Node) -> Choose:
    return Choose(number, axes_of((then, other)) | {ROW}, F32, IS_FIRST, then, other)


def found(*nodes: Node) -> tuple[Graph, dict[Node, Any]]:
    graph = Graph((TILE, *nodes), (Store(0, (of_axis(ROW), of_axis(COL)), nodes[-1]),))
    return graph, moved_in(graph, lambda axis: axis in (ROW, COL))


def test_an_edge_and_the_rest_are_lanes_of_one_tile() -> None:
    edge, rest = take(1, TILE, ROW, constant(0)), take(2, TILE, ROW, BEFORE)
    joined = choose(3, edge, rest)
    graph, moved = found(edge, rest, joined)
    assert list(moved) == [joined] and moved[joined].source is TILE and moved[joined].axes == {ROW}
    assert moved[joined].lanes == Either(IS_FIRST, Lane(((ROW, constant(0)),)), Lane(((ROW, BEFORE),)))
    assert within(graph, moved) == {edge, rest}


def test_two_axes_are_moved_at_once() -> None:
    one = take(1, TILE, ROW, BEFORE)
    both = take(2, one, COL, AFTER)
    _, moved = found(one, both)
    assert moved[both].lanes == Lane(((ROW, BEFORE), (COL, AFTER))) and one not in moved
    assert along(moved[both].lanes, COL) == Lane(((COL, AFTER),))


def test_what_is_chosen_along_one_axis_is_not_along_another() -> None:
    edge, rest = (take(n, TILE, ROW, index) for n, index in ((1, constant(0)), (2, BEFORE)))
    sides = [take(n + 3, side, COL, AFTER) for n, side in enumerate((edge, rest))]
    _, moved = found(edge, rest, *sides, choose(5, *sides))
    (lanes,) = [each.lanes for each in moved.values()]
    assert along(lanes, COL) == Lane(((COL, AFTER),)) and isinstance(along(lanes, ROW), Either)


def test_an_element_for_all_lanes_and_two_tiles_are_not() -> None:
    edge = take(1, TILE, ROW, constant(0))
    other = Carried(2, TILE.axes, F32, STEP)
    _, moved = found(edge, other, choose(3, TILE, take(4, other, ROW, BEFORE)))
    assert not moved
    graph = Graph((TILE, edge), (Store(0, (of_axis(COL),), edge),))
    assert not moved_in(graph, lambda axis: True)


def test_what_is_computed_alike_of_two_elements_is_computed_once() -> None:
    edge, rest = take(1, TILE, ROW, constant(0)), take(2, TILE, ROW, BEFORE)
    sides = [Compute(n, node.axes, F32, SIN, (node,)) for n, node in ((3, edge), (4, rest))]
    graph, _ = found(edge, rest, *sides, choose(5, *sides))
    simple = simplify(graph)
    stored = simple.stores[0].value
    assert isinstance(stored, Compute) and isinstance(stored.operands[0], Choose)
    wanted = Compute(5, TILE.axes, F32, ADD, (sides[0], sides[1]))
    graph, _ = found(edge, rest, *sides, wanted)
    assert len(list(simplify(graph).of_kind(Compute))) == 3


def test_the_only_lane_of_which_a_choice_is_reads_its_own() -> None:
    other = Carried(1, TILE.axes, F32, STEP)
    first, last, rest = (take(n + 2, TILE, ROW, at) for n, at in enumerate((constant(0), constant(7), BEFORE)))
    at_first = choose(5, first, take(6, other, ROW, BEFORE))
    graph = Graph((TILE, other, first, at_first.other, at_first), (Store(0, (of_axis(ROW), of_axis(COL)), at_first),))
    (found,) = simplify(graph).of_kind(Choose)
    assert isinstance(found.then, Carried) and isinstance(found.other, Take)

    conditions = (Condition(Index(0, ((ROW, 2),)), 0, 14),)  # of 2 * row: but for the last one
    at_last = Choose(5, TILE.axes, F32, conditions, rest, last)
    graph = Graph((TILE, last, rest, at_last), (Store(0, (of_axis(ROW), of_axis(COL)), at_last),))
    (found,) = simplify(graph).of_kind(Choose)
    assert found.conditions == (Condition(of_axis(ROW), 0, 7),)
    assert isinstance(found.then, Take) and isinstance(found.other, Carried)


def test_how_far_away_lanes_are_read() -> None:
    lanes = Either(IS_FIRST, Lane(), Lane(((ROW, BEFORE), (COL, Index(3, ((COL, -1),))))))
    assert shifts(lanes, ROW) == {0, -1} and shifts(lanes, COL) == {0, None}
