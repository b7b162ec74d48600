"""Programs with loops and computed places that once gave wrong numbers, hung the compiler, or made it give up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Found:
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    x64: bool = False
    kernels: int | None = 1  # None: it may stay with XLA


def set_at(x: Any, place: Any, value: Any) -> Any:
    return lax.dynamic_update_index_in_dim(x, value, place, 0)


def read_back(x: Any, place: Any, cotangent: Any) -> Any:
    return jax.vjp(lambda x: x[place], x)[1](cotangent)[0]


def looked_up_outside(x: Any, place: Any) -> Any:
    y = jnp.sin(x)
    return lax.scan(lambda _, __: ((), lax.dynamic_index_in_dim(y, place, 1, keepdims=False)), (), None, length=2)[1]


def states_as_a_matrix(v: Any) -> Any:
    states = lax.scan(lambda c, _: (v, c), v, None, length=3)[1]
    return lax.scan(lambda c, _: (c @ states, c), v, None, length=2)[1]


def state_and_steps(x: Any, gains: Any) -> Any:
    """What the first loop carries is what the second one reads step by step."""

    def first(c: Any, _: Any) -> Any:
        v = jnp.tanh(c)
        return v, gains - jnp.sin(v.mean())

    def second(carry: Any, row: Any) -> Any:
        c, d = carry
        v = c - 0.25 * c * row.sum()
        return (v, 0.5 * d + jnp.tanh(v.mean())), None

    states = lax.scan(first, x, None, length=2)[1]
    return lax.scan(second, (states, gains), x)[0][1]


def nothing_to_do(n: Any, x: Any) -> Any:
    """The least of one element is the first."""
    return lax.scan(lambda n, _: (jnp.where(lax.argmin(x, 0, jnp.int32) > 0, n + 1, n), ()), n, None, length=2)[0]


def one_place_for_all(x: Any, table: Any) -> Any:
    return jax.vmap(lambda x: lax.dynamic_index_in_dim(table, jnp.argmax(x), 0, keepdims=False))(x)


def reshaped_and_back(x: Any, y: Any) -> Any:
    """The gradient of a quotient through a reshape: (13 * 13 rows, 4) and back."""

    def fn(x: Any) -> Any:
        return jnp.sum((y / x.max(2, keepdims=True)).reshape(169, 4).reshape(13, 13, 4) * x)

    return jax.grad(fn)(x)


def inner_from_outer(n: Any, w: Any, gain: Any, v: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        c, d = carry
        inner = lax.scan(lambda c, _: (w, None), d, None, length=3)[0]
        return (jnp.tanh(c - inner), gain), None

    return lax.scan(step, (v, n), None, length=3)[0][0]


def norm_of_states(w: Any, v: Any) -> Any:
    """The states of a loop are the start of the next one, which walks them as lanes."""
    ys = lax.scan(lambda c, _: (w, c.astype(jnp.float32).sum()), v, None, length=2)[1]

    def step(c: Any, _: Any) -> Any:
        centred = c - c.mean()
        return centred * lax.rsqrt((centred * centred).mean() + 1e-2), None

    return lax.scan(step, ys, None, length=2)[0]


def place_of_largest_state(x: Any) -> Any:
    c, ys = lax.scan(lambda c, _: (jnp.cos(c.mean() + 0.5 * c), c), x, None, length=5)
    return c * jnp.argmax(ys)


def constant_states() -> Any:
    def outer(_: Any, __: Any) -> Any:
        return (), lax.scan(lambda _, __: ((), 1.0), (), None, length=3)[1]

    return lax.scan(outer, (), None, length=2)[1]


def states_beside_states(x: Any) -> Any:
    """The first dimension of what a step gives is as long as the loop."""
    return lax.scan(lambda c, e: (c * 0.5, (jnp.sqrt(jnp.abs(x)) + e.sum(), c)), jnp.zeros(5), x, reverse=True)


def read_at_own_counter(x: Any, w: Any) -> Any:
    n, v = lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, w), (jnp.int32(0), x))
    return lax.dynamic_slice_in_dim(v, n, 4, 0)


def pieces_of_lookups(places: Any, v: Any, w: Any) -> Any:
    y = jnp.sin(v[places % 5])
    return lax.concatenate([w, y, y, y], 0)


def loops_along_states(n: Any, start: Any, a: Any) -> Any:
    """The second loop carries the states of the first one, each for itself, and something else."""
    ys = lax.scan(lambda c, _: (c * 2, c), start, None, length=6)[1]

    def again(_: Any, carry: Any) -> Any:
        a, b = carry
        return jnp.tanh(a), jnp.where(jnp.sin(a).sum() > 0, b + 1, b)

    a, b = lax.fori_loop(0, n, again, (a, ys))
    return a, lax.broadcast_in_dim(b, (6, 8), (0,))


def inner_loop_from_a_state(x: Any, start: Any, reset: Any) -> Any:
    """The inner loop starts from what the outer one carries, and may not change it."""

    def outer(c: Any, _: Any) -> Any:
        def inner(d: Any, _: Any) -> Any:
            return reset, jnp.maximum(x * 0.5, x[jnp.argmax(d) % 2])

        _, ys = lax.scan(inner, c, None, length=2)
        return (c + 1) * 0.5, ys

    return lax.scan(outer, start, None, length=2)


def strided_softmax(x: Any, cotangent: Any, other: Any) -> Any:
    """What is added to some elements of every second row reads one number of that row."""

    def f(x: Any) -> Any:
        y = jnp.sin(x)
        return jax.nn.softmax(y[0:8:2, 9:11:3], 1), y - jnp.max(y, 1, keepdims=True)

    return jax.vjp(f, x)[1]((cotangent, other))[0]


def kept_name(x: Any) -> Any:
    """A value before the loops, and one inside of both, that would be called the same."""

    def outer(_: Any, c: Any) -> Any:
        y = lax.fori_loop(0, 2, lambda _, d: d * 0.5 + x * 2, c)
        return y * (x * 3)

    return lax.fori_loop(0, 3, outer, x)


def cache_of_rows(x: Any) -> Any:
    """A row is written at a place that a counter says, after a reshape; a batch of caches is independent loops."""

    def step(carry: Any, _: Any) -> Any:
        cache, t, x = carry
        cache = lax.dynamic_update_slice(cache, x.reshape(1, 2, 4), (t, 0, 0))
        return (cache, t + 1, jnp.sin(x) + cache.sum((0, 1, 2))), None

    return lax.scan(step, (jnp.zeros((6, 2, 4)), 0, x), None, length=6)[0]


def reshaped_update(x: Any, place: Any) -> Any:
    """In a batch the place is computed for each; the constants that keep it positive have to fit into 32 bits."""
    return lax.dynamic_update_slice(jnp.zeros((6, 3, 4)), jnp.sin(x).reshape(2, 1, 4), (place, 1, 0))


def kept_for_the_way_back(x: Any, start: Any, ceiling: Any) -> Any:
    """The way back reads, in a loop in a loop, what the inner loop had in each of its steps."""

    def outer(carry: Any, _: None) -> Any:
        inner = lax.scan(lambda d, _: (jnp.maximum(d * 0.5, jnp.tanh(ceiling)), None), carry[1], None, length=2)[0]
        return (inner, start), None

    return lax.scan(outer, (x, jnp.zeros(5)), None, length=2)[0][0]


def backwards_and_along(x: Any, y: Any) -> Any:
    """A carried value is the steps of a loop in its own body, and is wanted from its end."""

    def outer(c: Any, _: Any) -> Any:
        total = lax.scan(lambda d, e: (jnp.tanh(d + e), None), 0.0, c)[0]
        return jnp.where(total > 0.5, c, y), None

    return lax.rev(lax.scan(outer, x, None, length=4)[0], (0,))


def two_ends(x: Any, a: Any, b: Any) -> Any:
    """One output needs the first loop to be over before the second one starts, the other one the second one first."""
    c, ys = lax.scan(lambda c, _: ((c + jnp.tanh(a)) * 0.5,) * 2, x, None, length=2)
    d, place = lax.fori_loop(0, 2, lambda _, carry: (b * 2, carry[1] + 1), (c, jnp.int32(-1)))
    return d, ys.at[place].set(7.0)


def gradients_of_rows_on_columns(x: Any, rows: Any, places: Any) -> Any:
    """What a loop carries is wanted turned, at rows that differ from lane to lane."""

    def fn(row: Any, y: Any, place: Any) -> Any:
        y = lax.dynamic_update_index_in_dim(y, row, place, 0)
        return jnp.sum(lax.fori_loop(0, 2, lambda _, c: (c + jnp.tanh(jnp.mean(c, 1))) * 0.5, y @ y))

    return jax.vmap(jax.grad(fn, argnums=(0, 1)), (None, 0, 0))(x, rows, places)


def turned_rows_of_loops(xs: Any, v: Any, start: Any) -> Any:
    """What the inner loop puts out is read when the loop around that one is over."""

    def rows(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c) + v, c), x, None, length=3)[1]

    def step(_: Any, c: Any) -> Any:
        return 0.5 * c + lax.rev(lax.scan(lambda _, x: (_, rows(x)), 0, xs)[1], (0,)).mean()

    return lax.fori_loop(0, 2, step, start)


def gradients_of_two(x: Any, y: Any) -> Any:
    """What a loop carries is wanted along axes of which one might count the steps of another loop."""

    def step(carry: Any, rows: Any) -> Any:
        c, d = carry
        first, second = rows
        place = jnp.argmax(second).astype(np.float32)
        d = jnp.cos(place + 0.5 * d)
        return (0.5 * c + jnp.tanh(place), d), (d, first @ second)

    results, back = jax.vjp(lambda x, y: lax.scan(step, (x, y), (x, x), reverse=True), x, y)
    return results, back(jax.tree.map(jnp.cos, results))


def steps_before_the_loop(x: Any, start: Any) -> Any:
    """The steps of one loop are read in a loop within another one."""
    _, noise = lax.scan(lambda c, _: (c * 0.5 + 1, jnp.cos(c)), start, None, length=4)

    def step(c: Any, row: Any) -> Any:
        return c + jnp.sum(lax.scan(lambda c, e: (jnp.sin(c + e), ()), row, noise)[0]), ()

    return lax.scan(step, jnp.float32(0), x)[0]


def turned_and_looked_up(x: Any, places: Any) -> Any:
    return jnp.take_along_axis(x[:, ::-1], places, 1, mode="promise_in_bounds")


def edit_distance(a: Any, b: Any) -> Any:
    """What the outer loop carries begins as the positions of its lanes."""

    def row_after(row: Any, letter: Any) -> Any:
        def entry(left: Any, parts: Any) -> Any:
            diagonal, above, other = parts
            best = jnp.minimum(jnp.minimum(left + 1, above + 1), diagonal + (letter != other))
            return best, best

        _, rest = lax.scan(entry, row[0] + 1, (row[:-1], row[1:], b))
        return jnp.concatenate([row[:1] + 1, rest]), None

    return lax.scan(row_after, jnp.arange(len(b) + 1), a)[0][-1]


def gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jax.vjp(fn, *args)[1](jnp.ones(5))


def one_loop_in_two(x: Any, start: Any, end: Any, steps: Any) -> Any:
    """No step of the outer loop changes the inner one's results: they are made once more, outside, for the output."""

    def inner(_: Any, __: Any) -> Any:
        return (), lax.fori_loop(0, steps, lambda _, __: end, start)

    def outer(_: Any, __: Any) -> Any:
        ends = lax.scan(inner, (), None, length=3)[1]
        return (), (x & (ends.sum() < 1), ends)

    below, ends = lax.scan(outer, (), None, length=2)[1]
    return below, lax.dynamic_update_index_in_dim(ends, ends.sum(0), 1, 0)


def loop_beside_nested_ones(rows: Any, y: Any, z: Any) -> Any:
    """On the way back, a body makes steps for each of several places."""

    def inner(_: Any, row: Any) -> Any:
        return (), (y + jnp.tanh(row.sum())) * 0.5

    def outer(_: Any, __: Any) -> Any:
        return (), lax.scan(inner, (), rows)[1].sum()

    def beside(c: Any, _: Any) -> Any:
        return jax.nn.sigmoid(jnp.tanh(c) * 2) * c, ()

    sums = lax.scan(outer, (), None, length=3)[1]
    return lax.scan(beside, z, None, length=2)[0], jnp.broadcast_to(sums[:, None], (3, 2))


def gradients_beside(rows: Any, y: Any, z: Any, *cotangents: Any) -> Any:
    return jax.vjp(loop_beside_nested_ones, rows, y, z)[1](cotangents)


def larger_of_a_constant(p: Any, x: Any, y: Any) -> Any:
    """In one of the branches, what is compared for equality on the way back is a number."""
    return jax.vjp(lambda x: lax.cond(p, lambda: x, lambda: jnp.maximum(x * 0.5, jnp.tanh(y))), x)[1](y)


def same_bits_in_both_branches(x: Any, key: Any) -> Any:
    """What the loop in one branch starts with and what the other branch gives are made of the same random words."""

    def step(x: Any, i: Any) -> Any:
        def climb() -> Any:
            return lax.fori_loop(0, 3, lambda _, v: jnp.sin(v) + x, x * jax.random.normal(key, x.shape))

        return lax.cond(i % 2 == 0, climb, lambda: -x * jax.random.normal(key, x.shape)), x.sum()

    return lax.scan(step, x, jnp.arange(5))


def same_element_for_all_lanes(x: Any, i: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, c: c[jnp.broadcast_to(i, (3,)) % 3], x)


matrix = functools.partial(normal, 4, 4)


def once(step: Callable[[Any], Any], x: Any) -> Any:
    return lax.scan(lambda c, _: (step(c), None), x, None, length=1)[0]


def one_step_that_calls_one_step(x: Any) -> Any:
    return once(jax.checkpoint(lambda c: once(jnp.sin, c) + 1), x)


def asked_by_what_loops(x: Any) -> Any:
    smallest = jax.jit(lambda c: once(lambda v: v * 2, c).min())
    return lax.while_loop(lambda c: smallest(c) < 3, lambda c: c + 0.5, jnp.abs(x))



FOUND = (
    Found("one_step_that_calls_one_step", one_step_that_calls_one_step, (normal(3),)),
    Found("asked_by_what_loops", asked_by_what_loops, (normal(3),)),
    Found("clipped_set", jax.vmap(set_at), (normal(2, 8), np.array([9, -20]), np.ones(2, np.float32))),
    Found("clipped_gradient", jax.vmap(read_back), (normal(2, 8), np.array([9, -20]), np.ones(2, np.float32))),
    Found("branches_x64", lambda p, x: lax.cond(p, lambda: x, lambda: x * 2), (np.bool_(True), normal(3)), x64=True),
    Found("switch_x64", lambda p, x: lax.switch(p, [lambda: x, lambda: -x]), (np.int32(1), normal(3)), x64=True),
    Found("states_as_a_matrix", states_as_a_matrix, (normal(3),)),
    Found("state_and_steps", state_and_steps, (normal(6, 3), normal(2))),
    Found("nothing_to_do", nothing_to_do, (np.int32(3), normal(1))),
    Found("one_place_for_all", one_place_for_all, (normal(3, 1), normal(1))),
    Found("reshaped_and_back", reshaped_and_back, (np.abs(normal(13, 13, 4)) + 0.5, normal(13, 13, 4)), kernels=None),
    Found("place_from_outside", looked_up_outside, (normal(2, 2), np.int32(1))),
    Found("slice_of_positions", lambda x, i: lax.dynamic_slice_in_dim(x + jnp.arange(5.0), i, 2, 0), (normal(5), 7)),
    Found("row_of_identity", lambda p: jnp.eye(3)[p], (np.array([2, 0, 1]),)),
    Found("where_positions", lambda n, v: jnp.where(jnp.arange(3) < n, v, 0)[n], (np.int32(2), normal(3))),
    Found("inner_from_outer", inner_from_outer, (np.int32(1), np.int32(2), np.int32(3), normal(8))),
    Found("norm_of_states", norm_of_states, (np.array([3]), np.array([4]))),
    Found("place_of_largest_state", place_of_largest_state, (normal(7),), kernels=None),
    Found("constant_states", constant_states, (), kernels=None),
    Found("states_beside_states", states_beside_states, (normal(3, 2),)),
    Found("read_at_own_counter", read_at_own_counter, (normal(6), normal(6))),
    Found("pieces_of_lookups", pieces_of_lookups, (RNG.integers(0, 9, 8), normal(5, 5), normal(5, 5))),
    Found("loops_along_states", loops_along_states, (np.int32(3), np.float32(1), normal(8))),
    Found("same_element_for_all_lanes", same_element_for_all_lanes, (normal(3), np.int32(-2))),
    Found("same_bits_in_both_branches", same_bits_in_both_branches, (normal(5), np.array([3, 5], np.uint32))),
    Found("kept_for_the_way_back", gradients(kept_for_the_way_back), (normal(5), normal(5), np.float32(0.3))),
    Found("kept_name", kept_name, (normal(5),)),
    Found("inner_loop_from_a_state", inner_loop_from_a_state, (normal(2, 2), normal(5), normal(5))),
    Found("strided_softmax", jax.vmap(strided_softmax), (normal(3, 11, 11), normal(3, 4, 1), normal(3, 11, 11))),
    Found("cache_of_rows", jax.vmap(cache_of_rows), (normal(3, 8),)),
    Found("reshaped_update", jax.vmap(reshaped_update), (normal(4, 4, 2), np.array([0, 4, -1, 9]))),
    Found("transposed", lambda x: lax.fori_loop(0, 3, lambda _, c: 0.5 * c.T + c, x), (matrix(),)),
    Found("product_transposed", lambda x: lax.fori_loop(0, 3, lambda _, c: x @ c + 0.1 * (c @ x).T, x), (matrix(),)),
    Found("turned_matrix", lambda x: lax.fori_loop(0, 3, lambda _, c: 0.5 * c.T[::-1] + c, x), (matrix(),)),
    Found("turned_over", lambda x: lax.fori_loop(0, 3, lambda _, c: 0.5 * c.T[::-1, ::-1] + c, x), (matrix(),)),
    Found("read_backwards_and_along", backwards_and_along, (normal(3), normal(3))),
    Found("two_ends", two_ends, tuple(map(np.float32, (1, 2, 3))), kernels=2),
    Found("edit_distance", edit_distance, (RNG.integers(0, 4, 5), RNG.integers(0, 4, 7))),
    Found("positions", lambda n: lax.fori_loop(0, n, lambda i, c: c * 2 % 13 + i, jnp.arange(6)), (np.int32(3),)),
    Found("steps_before_the_loop", steps_before_the_loop, (normal(3, 8), np.float32(0.3))),
    Found("places_without_a_sign", turned_and_looked_up, (normal(3, 4), np.uint32([[0, 3], [1, 1], [2, 0]]))),
    Found("larger_of_a_constant", larger_of_a_constant, (np.bool_(False), *normal(2, 2).astype(np.float16))),
    Found("one_loop_in_two", one_loop_in_two, (np.ones((4, 1), bool), *np.int32([[[2]], [[-3]]]), 2), kernels=2),
    Found("loop_beside_nested_ones", gradients_beside, (normal(3, 3, 2), normal(2), *normal(2), normal(3, 2))),
    Found(
        "rows_on_columns",
        gradients_of_rows_on_columns,
        (normal(2), normal(3, 2, 2), np.int32([0, 1, 1])),
        kernels=3,
    ),
    Found("turned_rows_of_loops", turned_rows_of_loops, (normal(2, 8), normal(8), np.float32(0.3))),
    Found(
        "gradients_of_turned_rows",
        jax.grad(turned_rows_of_loops, argnums=(0, 1, 2)),
        (normal(2, 8), normal(8), np.float32(0.3)),
        kernels=None,
    ),
    Found("steps_of_another_loop", gradients_of_two, (normal(5, 5), normal(8, 5)), kernels=None),
)


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.name)
def test_found(found: Found) -> None:
    with jax.enable_x64(found.x64):
        program = j2t.transpile(found.fn, *found.args)
        if found.kernels is not None:
            assert (len(program.kernels), program.leftovers) == (found.kernels, ()), program.explain()
        mine, wanted = jax.tree.leaves(program(*found.args)), jax.tree.leaves(jax.jit(found.fn)(*found.args))
        for got, want in zip(mine, wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_batch_of_caches_is_independent_loops() -> None:
    (kernel,) = j2t.transpile(jax.vmap(cache_of_rows), jax.ShapeDtypeStruct((4096, 8), np.float32)).kernels
    assert kernel.grid[0] > 1, kernel.axes


def test_the_way_back_through_a_while_loop() -> None:
    @j2t.fuse
    def doubled(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]

    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work for lax.while_loop") as problem:
        jax.grad(doubled)(1.0)
    notes = "\n".join(problem.value.__notes__)
    assert "test_loops_found.py" in notes and "(doubled)" in notes
    assert "try  a `lax.scan`" in notes
