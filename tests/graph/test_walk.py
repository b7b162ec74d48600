"""Demand by index: what is asked for twice is one node, and only what is asked for is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.nodes import Choose, Compute, Constant, Graph, Load, Position, Reduce, operands_of
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.graph.walk import walk
from jaxpr2triton.ir.index import Axis, Condition, Index, of_axis
from jaxpr2triton.normalize.passes import normalize
from tests.programs import windows

X = jax.ShapeDtypeStruct((6, 40), np.float32)
V = jax.ShapeDtypeStruct((40,), np.float32)


def graph_of(fn: Callable[..., Any], *avals: Any) -> Graph:
    jaxpr = normalize(jax.make_jaxpr(fn)(*avals)).jaxpr
    space = space_of(jaxpr, jaxpr.outvars, Classes(jaxpr.eqns))
    assert space is not None
    return space.graph


def kinds(graph: Graph) -> Counter[str]:
    return Counter(type(node).__name__ for node in graph.nodes)


def primitives(graph: Graph) -> list[str]:
    return [node.eqn.primitive.name for node in graph.nodes if isinstance(node, Compute | Reduce)]


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-6) * scale + bias


@pytest.mark.parametrize(
    ("fn", "avals", "loads"),
    [
        (jax.nn.softmax, (X,), 1),
        (jax.nn.log_softmax, (X,), 1),
        (layer_norm, (X, V, V), 3),
        (lambda x, y: jax.nn.logsumexp(x - y, axis=-1), (X, X), 2),
        (lambda x: jax.grad(lambda y: jnp.sum(jax.nn.softmax(y) ** 2))(x), (X,), 1),
        (lambda x: x * x + jnp.sin(x), (X,), 1),
        (lambda x: x[:, ::-1] + x[:, ::-1] * 2, (X,), 1),
        (lambda x: x + x[::-1], (X,), 2),
        (lambda x: x.T.reshape(240).reshape(40, 6).T * 2 + x, (X,), 1),
        (lambda x: jnp.stack([x, x], 1).sum(1), (X,), 1),
    ],
    ids=[
        *("softmax", "log_softmax", "layer_norm", "logsumexp", "softmax gradient", "one place", "one turned place"),
        *("two places", "there and back", "two copies"),
    ],
)
def test_an_element_is_loaded_once(fn: Callable[..., Any], avals: tuple[Any, ...], loads: int) -> None:
    assert kinds(graph_of(fn, *avals))["Load"] == loads


def test_equal_demands_are_one_node() -> None:
    graph = graph_of(lambda x: (jnp.exp(x) + 1, jnp.exp(x) * 2), X)
    assert primitives(graph).count("exp") == 1
    assert [node.dtype.name for node in graph.of_kind(Constant)] == ["float32", "float32"]


def test_a_value_at_two_places_is_two_nodes() -> None:
    graph = graph_of(lambda x: jnp.exp(x) + jnp.exp(x)[::-1], X)
    assert primitives(graph).count("exp") == 2


def test_what_nobody_asks_for_is_not_there() -> None:
    graph = graph_of(lambda x: jnp.concatenate([jnp.exp(x), jnp.sin(x)])[:6], X)
    assert primitives(graph) == ["exp"]
    assert kinds(graph)["Choose"] == 0


def test_operands_come_first() -> None:
    graph = graph_of(layer_norm, X, V, V)
    assert [node.number for node in graph.nodes] == list(range(len(graph.nodes)))
    for node in graph.nodes:
        assert all(operand.number < node.number for operand in operands_of(node))
        assert graph.nodes.count(node) == 1


def test_index_primitives_leave_no_node() -> None:
    graph = graph_of(lambda x: x.T[::2, None].reshape(4, 30)[::-1] * 2, X)
    assert primitives(graph) == ["mul"]
    (load,) = graph.of_kind(Load)
    (store,) = graph.stores
    assert [str(i) for i in store.place] == ["d0", "d1"]
    assert load.guard == ()


def test_guards_only_where_elements_may_be_missing() -> None:
    inside = graph_of(lambda x: jnp.pad(x, ((0, 0), (2, 3)))[:, 2:-3] * 1.5, X)
    assert [load.guard for load in inside.of_kind(Load)] == [()]
    assert kinds(inside)["Choose"] == 0
    padded = graph_of(lambda x: jnp.pad(x * 2, ((0, 0), (2, 3))), X)
    (load,) = padded.of_kind(Load)
    (choice,) = padded.of_kind(Choose)
    assert [str(c) for c in load.guard] == ["2 <= d1 < 42"]
    assert [str(c) for c in choice.conditions] == ["0 <= d1 - 2 < 40"]


def test_a_broadcast_operand_needs_no_guard() -> None:
    graph = graph_of(lambda x, v: jnp.pad(x * v[:6, None], ((0, 0), (2, 3))), X, V)
    guards = {load.buffer: load.guard for load in graph.of_kind(Load)}
    assert len(guards[0]) == 1 and guards[1] == ()


def test_guards_narrow_from_piece_to_piece() -> None:
    graph = graph_of(lambda x, y: jnp.pad(jnp.concatenate([x, y]), ((1, 1), (0, 0))), X, X)
    assert sorted(str(c) for load in graph.of_kind(Load) for c in load.guard) == [
        "1 <= d0 < 7",
        "7 <= d0 < 13",
    ]


def test_positions() -> None:
    graph = graph_of(lambda x: x * lax.broadcasted_iota(jnp.float32, (6, 40), 1) + lax.iota(jnp.int32, 40), X)
    assert sorted((str(node.index), node.dtype.name) for node in graph.of_kind(Position)) == [
        ("d1", "float32"),
        ("d1", "int32"),
    ]


def test_literals_differ_by_their_bits() -> None:
    graph = graph_of(lambda x: (x * 0.0) + (x * -0.0) + jnp.where(x > 0, 0.0, x), X)
    zeros = [str(node.value) for node in graph.of_kind(Constant)]
    assert sorted(zeros) == ["-0.0", "0.0"]


ROW, COL, K = Axis("row", 6), Axis("col", 40), Axis("k", 3)


class AlongK:
    """A chooser for programs with one reduction and no loop."""

    def reduction(self, number: Any, operand: Any, dims: Any, in_use: Any, hints: Any) -> tuple[Index, ...]:
        return (of_axis(K),)

    def loop(self, number: Any, scan: Any, facts: Any, kinds: Any, hints: Any, in_use: Any) -> tuple[Index, ...]:
        raise AssertionError("there is no loop")

    def inside(self, facts: Any, binding: Any) -> AlongK:
        return self


def walked(fn: Callable[..., Any], avals: tuple[Any, ...], *unrolled: Axis, place: Any = (ROW,)) -> Graph:
    jaxpr = jax.make_jaxpr(fn)(*avals).jaxpr
    roots = [(jaxpr.outvars[0], tuple(map(of_axis, place)))]
    return walk(jaxpr, roots, AlongK(), frozenset(unrolled))


def test_an_unrolled_reduction_has_an_operand_for_each_index() -> None:
    aval = jax.ShapeDtypeStruct((6, 3), np.float32)
    (whole,) = walked(lambda x: x.sum(1), (aval,)).of_kind(Reduce)
    assert (len(whole.operands), whole.over, whole.axes) == (1, (K,), {ROW})
    graph = walked(lambda x: x.sum(1), (aval,), K)
    (pieces,) = graph.of_kind(Reduce)
    assert (len(pieces.operands), pieces.over, pieces.axes) == (3, (), {ROW})
    assert [str(p) for p in pieces.positions] == ["0", "1", "2"]
    assert sorted(str(load.place[1]) for load in graph.of_kind(Load)) == ["0", "1", "2"]


def test_an_unrolled_output_has_a_store_for_each_index() -> None:
    aval = jax.ShapeDtypeStruct((6, 3), np.float32)
    graph = walked(lambda x: jnp.exp(x) * 2, (aval,), K, place=(ROW, K))
    assert [str(store.place[1]) for store in graph.stores] == ["0", "1", "2"]
    assert len({store.value for store in graph.stores}) == 3


def test_what_is_in_memory_is_loaded() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jnp.exp(x) * 2)(X).jaxpr
    middle = jaxpr.eqns[0].outvars[0]
    graph = walk(jaxpr, [(jaxpr.outvars[0], (of_axis(ROW), of_axis(COL)))], lambda *_: (), loaded={middle: 7})
    assert primitives(graph) == ["mul"]
    assert [load.buffer for load in graph.of_kind(Load)] == [7]


@pytest.mark.parametrize(("filling", "choices"), [(0.0, 0), (-0.0, 1), (1.0, 1)])
def test_zeros_around_what_is_loaded_are_no_choice(filling: float, choices: int) -> None:
    """A masked load gives them."""
    jaxpr = jax.make_jaxpr(lambda x: lax.pad(x, filling, [(0, 1, 0), (0, 0, 0)]))(X).jaxpr
    row = of_axis(Axis("row", 7))
    graph = walk(jaxpr, [(jaxpr.outvars[0], (row, of_axis(COL)))], lambda *_: ())
    assert len(list(graph.of_kind(Choose))) == choices
    (load,) = graph.of_kind(Load)
    assert list(map(str, load.guard)) == ["0 <= row < 6"]


def test_a_place_outside_of_an_operand_is_a_bug() -> None:
    jaxpr = jax.make_jaxpr(lambda x: x * 2)(X).jaxpr
    with pytest.raises(CompilerBug) as caught:
        walk(jaxpr, [(jaxpr.outvars[0], (of_axis(COL), of_axis(COL)))], lambda *_: ())
    assert str(caught.value) == "an operand of shape (6, 40) is read at (col, col)"


def test_a_primitive_without_rule_is_a_bug_here() -> None:
    jaxpr = jax.make_jaxpr(lambda x: windows(x))(X).jaxpr
    with pytest.raises(CompilerBug) as caught:
        walk(jaxpr, [(jaxpr.outvars[0], (of_axis(ROW), of_axis(COL)))], lambda *_: ())
    assert str(caught.value) == "no rule for `reduce_window_sum` inside a kernel"


def test_conditions_print() -> None:
    assert str(Condition(of_axis(COL), 2, 5)) == "2 <= col < 5"


def test_a_row_that_is_never_read_is_not_read_along_flat_axes_either() -> None:
    """The one row with a gradient is all padding: no row's sum is wanted, whichever axes the kernel gets."""

    def scaled(x: jax.Array) -> jax.Array:
        padded = lax.pad(x[14:15], jnp.asarray(1, x.dtype), ((-1, 3, 2), (0, 2, 1)))
        return padded / (1 + jnp.abs(padded).sum(1, keepdims=True))

    x = jnp.ones((33, 33))
    gradient = jax.grad(lambda x: scaled(x).sum())
    found = j2t.fuse(gradient, backend="interpret", strict=True)(x)
    np.testing.assert_allclose(found, jax.jit(gradient)(x))
