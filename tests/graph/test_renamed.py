"""What is the same along two axes of lanes is computed along one of them."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph.nodes import Carried, Compute, Constant, Graph, Keep, Kept, Load, Node, Reduce, Store, Take
from jaxpr2triton.graph.renamed import keep_lanes, share_renamed
from jaxpr2triton.graph.simplify import simplify
from jaxpr2triton.ir.index import Axis, Dynamic, Index, of_axis

ROW, K, OTHER, STEP = Axis("row", 8), Axis("k", 8), Axis("other", 8), Axis("t", 5)
F32 = np.dtype(np.float32)
TANH, MUL = (jax.make_jaxpr(f)(1.0, 2.0).eqns[0] for f in (lambda a, b: jnp.tanh(a), lambda a, b: a * b))


def graph(*nodes: Node, stored: Node) -> Graph:
    return Graph(nodes, (Store(0, (of_axis(ROW),), stored),))


def load(number: int, axis: Axis, buffer: int = 0) -> Load:
    return Load(number, frozenset({axis}), F32, buffer, (of_axis(axis),), ())


def test_a_value_along_two_axes() -> None:
    first, second = load(0, K), load(1, ROW)
    one = Compute(2, first.axes, F32, TANH, (first,))
    two = Compute(3, second.axes, F32, TANH, (second,))
    total = Reduce(4, frozenset(), F32, MUL, (one,), (K,), (of_axis(K),))
    last = Compute(5, two.axes, F32, MUL, (two, total))
    shared = share_renamed(graph(first, second, one, two, total, last, stored=last), [frozenset({ROW, K})])
    assert len(list(shared.of_kind(Load))) == 1
    assert [node.eqn is TANH for node in shared.of_kind(Compute)] == [True, False]
    renamed = [node for node in shared.of_kind(Take) if node.axes == {ROW}]
    assert all(node.axis == K and node.index == of_axis(ROW) for node in renamed) and renamed
    numbers = [node.number for node in shared.nodes]
    assert numbers == sorted(set(numbers))
    read_once = share_renamed(graph(first, second, one, two, total, last, stored=last), [frozenset({ROW, K})], False)
    assert len(list(read_once.of_kind(Load))) == 1
    assert [node.eqn is TANH for node in read_once.of_kind(Compute)] == [True, True, False]


def test_other_axes_and_other_places_are_left_alone() -> None:
    first, second, third = load(0, K), load(1, OTHER), load(2, ROW, buffer=1)
    shifted = Load(3, frozenset({ROW}), F32, 0, (Index(1, ((ROW, 1),)),), ())
    nodes = (first, second, third, shifted)
    stores = tuple(Store(n, (of_axis(ROW),), node) for n, node in enumerate(nodes))
    shared = share_renamed(Graph(nodes, stores), [frozenset({ROW, K})])
    assert len(shared.nodes) == 4 and not list(shared.of_kind(Take))


def test_a_state_under_another_name_is_the_state() -> None:
    state = Carried(0, frozenset({ROW, STEP}), F32, STEP)
    renamed = Take(1, frozenset({K, STEP}), F32, state, ROW, of_axis(K))
    two = Constant(2, frozenset(), F32, 2.0)
    along_row = Compute(3, state.axes, F32, MUL, (state, two))
    along_k = Compute(4, renamed.axes, F32, MUL, (renamed, two))
    nodes = (state, renamed, two, along_row, along_k)
    shared = share_renamed(Graph(nodes, (Store(0, (of_axis(K),), along_k),)), [frozenset({ROW, K})])
    assert len(list(shared.of_kind(Compute))) == 1
    assert isinstance(shared.stores[0].value, Take) and shared.stores[0].value.axis == ROW


def test_gates_of_a_backward_loop_are_computed_once() -> None:
    def states(weights: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ weights + x)
            return h, h

        return lax.scan(step, jnp.zeros(16), xs)[1].sum()

    rng = np.random.default_rng(0)
    weights, xs = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (6, 16)))
    backward = j2t.transpile(states, weights, xs, grad=(0, 1)).backward
    (loop,) = (kernel for kernel in backward.kernels if "for t" in kernel.source)
    loads = re.findall(r"tl\.load\((\w+)_ptr([^,\n]*)", loop.source)
    along = {(buffer, *re.findall(r"\b(?:row|col|k)\d*\b", place)) for buffer, place in loads}
    assert len(along) == len({buffer for buffer, _ in loads}) == 4, loop.source


def number(key: str) -> Index:
    return Index(0, ((Dynamic(key, frozenset({ROW}), 0, 7, False), 1),))


def test_numbers_of_places_are_there_as_long_as_a_place_has_them() -> None:
    """What a store's place needs is kept; a number that nothing reads any more is forgotten."""
    place, idle, value = (load(n, ROW, buffer=n) for n in range(3))
    stores = (Store(0, (number("place"),), value),)
    whole = Graph((place, idle, value), stores, {"place": place, "idle": idle})
    for changed in (share_renamed(whole, [frozenset({ROW, K})]), simplify(whole)):
        assert set(changed.computed) == {"place"} and set(changed.computed.values()) <= set(changed.nodes)


def test_the_gradient_of_a_table_walked_by_its_diagonals() -> None:
    """Sharing leaves numbers of places that nothing reads."""

    def best(scores: Any) -> Any:
        rows, columns = scores.shape
        row = jnp.arange(rows)

        def step(last: Any, diagonal: Any) -> Any:
            score = scores[row, jnp.clip(diagonal - row, 0, columns - 1)]
            return jnp.maximum(jnp.concatenate([jnp.zeros(1), last[:-1]]), last + score), None

        return lax.scan(step, jnp.zeros(rows), jnp.arange(rows + columns - 1))[0].max()

    scores = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    fused = j2t.fuse(jax.grad(best), backend="interpret")
    np.testing.assert_allclose(fused(scores), jax.jit(jax.grad(best))(scores), rtol=1e-6)


def kept(*operands: Node, axis: Axis) -> tuple[Keep, Kept]:
    eqn = jax.make_jaxpr(lambda x: x)(np.ones(8, np.float32)).jaxpr
    places = tuple((of_axis(axis),) for _ in operands)
    keep = Keep(9, frozenset({STEP}), F32, eqn, operands, (axis,), places, (0,))
    return keep, Kept(10, frozenset({ROW}), F32, keep, (of_axis(ROW),), ())


def test_a_tile_is_kept_along_its_own_lanes() -> None:
    state = Carried(0, frozenset({ROW, STEP}), F32, STEP)
    renamed = Take(1, frozenset({K, STEP}), F32, state, ROW, of_axis(K))
    keep, read = kept(renamed, axis=K)
    moved = next(keep_lanes(graph(state, renamed, keep, read, stored=read), frozenset({K})).of_kind(Keep))
    assert moved.operands[0] == state or isinstance(moved.operands[0], Carried)
    assert moved.over == (ROW,) and moved.places == ((of_axis(ROW),),)


def test_a_tile_that_is_moved_or_held_is_kept_as_it_is() -> None:
    state = Carried(0, frozenset({ROW, STEP}), F32, STEP)
    shifted = Take(1, frozenset({K, STEP}), F32, state, ROW, Index(1, ((K, 1),)))
    keep, read = kept(shifted, axis=K)
    whole = graph(state, shifted, keep, read, stored=read)
    assert next(keep_lanes(whole, frozenset({K})).of_kind(Keep)).over == (K,)
    renamed = Take(1, frozenset({K, STEP}), F32, state, ROW, of_axis(K))
    keep, read = kept(renamed, axis=K)
    whole = graph(state, renamed, keep, read, stored=read)
    assert next(keep_lanes(whole, frozenset()).of_kind(Keep)).over == (K,)
