"""Graphs before and after: what is known of constants, bounds and choices, and what is equal by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph import planned
from jaxpr2triton.graph.joint_sums import join_sums
from jaxpr2triton.graph.nodes import (
    Carried,
    Choose,
    Compute,
    Constant,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Node,
    Position,
    Product,
    Recurrence,
    Reduce,
    Store,
    operands_of,
)
from jaxpr2triton.graph.simplify import ROUNDS, simplify
from jaxpr2triton.ir.index import ZERO, Axis, Condition, Dynamic, Index, add, constant, of_axis, scale, shift
from tests.loop_programs import PROGRAMS

K = Axis("k", 8)
F32, I32, BOOL = np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool)
AXES = frozenset({K})
NONE: frozenset[Axis] = frozenset()


def equation(f: Callable[..., Any], *values: Any) -> Any:
    return jax.make_jaxpr(f)(*values).eqns[-1]


ADD, MUL, SIN = (equation(f, 1.0, 2.0) for f in (lax.add, lax.mul, lambda a, b: lax.sin(a)))
LESS, REM, CLAMP = equation(lax.lt, 1, 2), equation(lax.rem, 1, 2), equation(lax.clamp, 0, 1, 2)
SELECT = equation(lax.select_n, True, 1.0, 2.0)
WHICH = equation(lax.select_n, True, 1, 2)


def check_order(graph: Graph) -> None:
    """Every operand stands before those that use it."""
    seen: set[Node] = set()
    for node in graph.nodes:
        assert seen.issuperset(operands_of(node)), node
        seen.add(node)
    assert seen.issuperset(store.value for store in graph.stores)


class Building:
    """Nodes in order, numbered as they come."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.computed: dict[Any, Node] = {}

    def add(self, kind: Any, axes: Any, dtype: Any, *fields: Any) -> Any:
        node = kind(len(self.nodes), axes, dtype, *fields)
        self.nodes.append(node)
        return node

    def constant(self, value: Any, dtype: Any = I32) -> Any:
        return self.add(Constant, NONE, dtype, np.dtype(dtype).type(value))

    def load(self, buffer: int = 0, guard: Any = (), dtype: Any = F32) -> Any:
        return self.add(Load, AXES, dtype, buffer, (of_axis(K),), guard)

    def compute(self, eqn: Any, *operands: Node, dtype: Any = F32) -> Any:
        return self.add(Compute, frozenset().union(*(o.axes for o in operands)), dtype, eqn, operands)

    def simplified(self, *stored: Node) -> Graph:
        stores = tuple(Store(n, (of_axis(K),), node) for n, node in enumerate(stored))
        graph = Graph(tuple(self.nodes), stores, self.computed)
        check_order(graph)
        found = simplify(graph)
        check_order(found)
        assert simplify(found) is found
        return found


def test_a_comparison_of_constants_decides() -> None:
    build = Building()
    x, y = build.load(0), build.load(1)
    test = build.compute(LESS, build.constant(3), build.constant(2), dtype=BOOL)
    (store,) = build.simplified(build.compute(SELECT, test, x, y)).stores
    assert isinstance(store.value, Load) and store.value.buffer == 0


def test_bounds_decide() -> None:
    build = Building()
    x, n = build.load(0), build.load(1, dtype=I32)
    rest = build.compute(REM, n, build.constant(8), dtype=I32)
    test = build.compute(LESS, rest, build.constant(8), dtype=BOOL)
    graph = build.simplified(build.compute(SELECT, test, x, build.compute(SIN, x)))
    assert [type(node) for node in graph.nodes] == [Load, Compute] and graph.nodes[1].eqn is SIN


def at(build: Building, number: Node) -> Any:
    """A load at a computed place, brought into 0 … 7."""
    build.computed["n"] = number
    place = Index(0, ((Dynamic("n", number.axes, 0, 7, True), 1),))
    return build.add(Load, AXES, F32, 2, (place,), (), (number,))


@pytest.mark.parametrize(("least", "most", "clamped"), [(0, 7, False), (2, 5, False), (-1, 7, True), (0, 8, True)])
def test_what_lies_inside_is_not_clamped(least: int, most: int, clamped: bool) -> None:
    build = Building()
    number = build.compute(CLAMP, build.constant(least), build.load(0, dtype=I32), build.constant(most), dtype=I32)
    (store,) = build.simplified(at(build, number)).stores
    ((dynamic, _),) = store.value.place[0].terms
    assert dynamic.clamped is clamped


def test_a_computed_place_may_be_a_constant_or_a_lane() -> None:
    build = Building()
    (store,) = build.simplified(at(build, build.constant(9))).stores
    assert store.value.place == (Index(7, ()),)
    build = Building()
    (store,) = build.simplified(at(build, build.add(Position, AXES, I32, of_axis(K)))).stores
    assert store.value.place == (of_axis(K),)


FIRST = (Condition(shift(of_axis(K), -1), 0, 5),)  # 1 <= k < 6


def test_a_choice_between_true_and_false_is_its_condition() -> None:
    build = Building()
    x = build.load(0)
    inside = build.add(Choose, AXES, BOOL, FIRST, build.constant(True, BOOL), build.constant(False, BOOL))
    (store,) = build.simplified(build.compute(SELECT, inside, build.constant(1, F32), x)).stores
    assert isinstance(store.value, Choose) and isinstance(store.value.then, Load)


def test_a_masked_load_is_zero_outside() -> None:
    for fill, kind in ((0, Load), (1, Choose)):
        build = Building()
        x = build.load(0, guard=FIRST)
        (store,) = build.simplified(build.add(Choose, AXES, F32, FIRST, x, build.constant(fill, F32))).stores
        assert isinstance(store.value, kind)


def test_conditions_that_hold_anyway() -> None:
    build = Building()
    x, y = build.load(0), build.load(1)
    inner = build.add(Choose, AXES, F32, FIRST, x, y)
    outer = build.add(Choose, AXES, F32, FIRST, inner, y)
    (store,) = build.simplified(outer).stores
    assert isinstance(store.value, Choose) and isinstance(store.value.then, Load)
    build = Building()
    always = build.add(Choose, AXES, F32, (Condition(of_axis(K), 0, 8),), build.load(0), build.load(1))
    (store,) = build.simplified(always).stores
    assert isinstance(store.value, Load) and store.value.buffer == 0


def test_equal_values_are_one() -> None:
    build = Building()
    x, again = build.load(0), build.load(0)
    one, other = build.compute(SIN, x), build.compute(equation(lambda a: lax.sin(a), 1.0), again)
    graph = build.simplified(build.compute(ADD, one, other))
    assert [type(node) for node in graph.nodes] == [Load, Compute, Compute]
    total = graph.nodes[-1]
    assert isinstance(total, Compute) and total.operands[0] is total.operands[1]


def test_what_is_read_at_a_known_place_varies_along_what_was_kept() -> None:
    """The number that says where turns out to be a constant; each step of a loop around keeps something else."""
    build, t = Building(), Axis("t", 4)
    carried = build.add(Carried, frozenset({t, K}), F32, t)
    keep = build.add(Keep, frozenset({t}), F32, None, (carried,), (K,), ((of_axis(K),),), (0,))
    build.computed["n"] = build.constant(3, I32)
    place = Index(0, ((Dynamic("n", frozenset({t}), 0, 7, True), 1),))
    kept = build.add(Kept, frozenset({t}), F32, keep, (place,), (), (build.computed["n"],))
    (found,) = build.simplified(kept).of_kind(Kept)
    assert (found.place, found.axes) == ((constant(3),), frozenset({t}))


def test_terms_of_ones_and_zeros() -> None:
    build = Building()
    x, y = build.load(0), build.load(1)
    one = build.add(Product, AXES, F32, (build.constant(1, F32), x))
    nothing = build.add(Product, NONE, F32, (build.constant(0, F32), build.constant(2, F32)))
    product = build.add(Product, AXES, F32, (x, y))
    total = build.add(Reduce, NONE, F32, ADD, (one, nothing, product), (K,), (of_axis(K),) * 3)
    dot = equation(lambda a, b: jnp.dot(a, b), np.ones(3), np.ones(3))
    total = build.add(Reduce, NONE, F32, dot, (one, nothing, product), (K,), (of_axis(K),) * 3)
    (store,) = build.simplified(total).stores
    assert [type(term) for term in store.value.operands] == [Load, Product]


def test_floats_that_are_no_numbers_stay() -> None:
    """0 * x is not 0 where x is inf."""
    build = Building()
    graph = build.simplified(build.compute(MUL, build.constant(0, F32), build.load(0)))
    assert len(graph.nodes) == 3


CONJUNCTION = equation(lax.bitwise_and, True, False)


@pytest.mark.parametrize("lanes", [NONE, AXES])
def test_a_loop_that_goes_on_by_one_number_has_gone_on(lanes: frozenset[Axis]) -> None:
    """Where each lane goes on by itself, a step may be another lane's."""
    build, step = Building(), Axis("t", 4)
    start, first = build.constant(True, BOOL), build.load(0)
    going = build.add(Carried, frozenset({step}) | lanes, BOOL, step)
    x = build.add(Carried, frozenset({step, K}), F32, step)
    after = build.compute(SELECT, going, x, build.compute(SIN, x))
    goes_on = build.compute(CONJUNCTION, going, build.load(1, dtype=BOOL), dtype=BOOL)
    parts = NONE, NONE, False, True, (start, first), (going, x), (goes_on, after)
    loop = build.add(Recurrence, AXES, F32, None, step, *parts)
    final = build.add(Final, AXES, F32, loop, 1)
    graph = Graph(tuple(build.nodes), (Store(0, (of_axis(K),), final),), {})
    (found,) = simplify(graph, lanes).of_kind(Recurrence)
    assert isinstance(found.nexts[0], Compute if lanes else Load)
    assert found.nexts[1].eqn is (SELECT if lanes else SIN)


def test_neighbouring_choices_of_one_value() -> None:
    """What stands left of an array that has been shifted by two."""
    build = Building()
    x, low = build.load(), build.constant(-1.0, F32)
    inner = build.add(Choose, AXES, F32, (Condition(of_axis(K), 1, 2),), low, x)
    outer = build.add(Choose, AXES, F32, (Condition(of_axis(K), 0, 1),), low, inner)
    (found,) = build.simplified(outer).of_kind(Choose)
    assert [str(condition) for condition in found.conditions] == ["0 <= k < 2"] and isinstance(found.other, Load)


@pytest.mark.parametrize(
    ("start", "other", "is_one"), [(3, 0.0, True), (4, 0.0, False), (3, -0.0, False), (3, 1.0, False)]
)
def test_a_sum_of_two_sides_is_a_choice(start: int, other: float, is_one: bool) -> None:
    """What the transpose of a roll adds: two pieces, with zeros beside them."""
    build = Building()
    left, right = (build.compute(SIN, build.load(n)) for n in (0, 1))
    y = build.constant(other, F32)
    below = build.add(Choose, AXES, F32, (Condition(of_axis(K), 0, 3),), left, y)
    above = build.add(Choose, AXES, F32, (Condition(of_axis(K), start, K.size),), right, y)
    found = build.simplified(build.compute(ADD, above, below))
    chosen = list(found.of_kind(Choose))
    assert len(chosen) == (1 if is_one else 2)
    if is_one:
        (choice,) = chosen
        assert choice.conditions == (Condition(of_axis(K), 0, 3),)
        assert [side.operands[0].buffer for side in (choice.then, choice.other)] == [0, 1]


@pytest.mark.parametrize(("high", "conditions"), [(2, 1), (3, 2)])
def test_an_equation_gives_a_number_its_range(high: int, conditions: int) -> None:
    """0 <= n < 3 beside n == m, of m in 0 … 2; but of m in 0 … 3 it says something."""
    build = Building()
    n, m = build.load(0, dtype=I32), build.load(1, dtype=I32)
    build.computed |= {"n": n, "m": m}
    number = Index(0, ((Dynamic("n", AXES, -(2**31), 2**31 - 1, False), 1),))
    other = Index(0, ((Dynamic("m", AXES, 0, high, True), 1),))
    both = Condition(number, 0, 3), Condition(add(number, scale(other, -1)), 0, 1)
    chosen = build.add(Choose, AXES, F32, both, build.load(2), build.load(3), (n, m))
    (found,) = build.simplified(chosen).of_kind(Choose)
    assert len(found.conditions) == conditions


def test_sums_that_are_only_added_are_one() -> None:
    build = Building()
    total = jax.make_jaxpr(jnp.sum)(np.ones(8)).eqns[-1]
    one, other = (build.add(Reduce, NONE, F32, total, (build.load(n),), (K,), (ZERO,)) for n in (0, 1))
    both = build.compute(ADD, one, other)
    graph = Graph(tuple(build.nodes), (Store(0, (), both),), {})
    (found,) = join_sums(graph).of_kind(Reduce)
    assert [node.buffer for node in found.operands] == [0, 1]
    stores = (Store(0, (), both), Store(1, (), one))  # one of them is read on its own
    assert join_sums(Graph(graph.nodes, stores, {})).nodes == graph.nodes
    assert join_sums(Graph(graph.nodes, graph.stores, {"place": one})).nodes == graph.nodes  # a place has it


@pytest.mark.parametrize("name", ["kalman", "ctc_loss", "value_iteration", "gru"])
def test_whole_kernels(name: str) -> None:
    """Operands stand before what they are in, and a graph that has been simplified is simple."""
    (program,) = (program for program in PROGRAMS if program.name == name)
    rounds: list[int] = []

    def checked(graph: Graph, lanes: frozenset[Axis]) -> Graph:
        check_order(graph)
        found = simplify(graph, lanes)
        check_order(found)
        assert simplify(found, lanes) is found
        rounds.append(len(found.nodes) - len(graph.nodes))
        return found

    with mock.patch.object(planned, "simplify", checked), program.precision():
        j2t.transpile(program.fn, *program.args(np.random.default_rng(0)))
    assert rounds and max(rounds) <= 0 and ROUNDS < 10
