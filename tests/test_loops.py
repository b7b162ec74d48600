"""Loops: how many kernels they become, and that the kernels compute what JAX computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    shapes: tuple[Any, ...]  # of float arguments, or arrays
    kernels: int
    leftovers: tuple[str, ...] = ()

    def arguments(self) -> tuple[Any, ...]:
        rng = np.random.default_rng(7)
        return tuple(s if isinstance(s, np.ndarray) else rng.standard_normal(s, np.float32) * 0.5 for s in self.shapes)


def scanned(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda start, xs: lax.scan(step, start, xs)


def rnn(weights: Any, bias: Any, start: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ weights + x + bias)
        return h, h

    return lax.scan(step, start, xs)


def lorenz(state: Any, rate: Any) -> Any:
    def slope(s: Any) -> Any:
        x, y, z = s[..., 0], s[..., 1], s[..., 2]
        return jnp.stack([10 * (y - x), x * (rate - z) - y, x * y - 8 / 3 * z], -1)

    def step(s: Any, _: Any) -> Any:
        first = slope(s)
        return s + 0.005 * (first + slope(s + 0.01 * first)), None

    return lax.scan(step, state, None, length=3)[0]


def advantages(rewards: Any, values: Any) -> Any:
    def step(carry: Any, now: Any) -> Any:
        reward, after, before = now
        carry = reward + 0.99 * after - before + 0.95 * carry
        return carry, carry

    start = jnp.zeros(rewards.shape[1:])
    return lax.scan(step, start, (rewards, values[1:], values[:-1]), reverse=True)[1]


def newton(number: Any) -> Any:
    return lax.while_loop(lambda x: jnp.abs(x * x - number) > 1e-3, lambda x: 0.5 * (x + number / x), number + 1)


def ring(xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        buffer, place = carry
        return (buffer.at[place % 4].set(x), place + 1), buffer.sum()

    return lax.scan(step, (jnp.zeros(4), 0), xs)


def noisy(words: Any, x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        key, x = carry
        key, now = jax.random.split(key)
        return (key, jnp.tanh(x) + jax.random.normal(now, x.shape)), x

    return lax.scan(step, (jax.random.wrap_key_data(words), x), None, length=3)[1]


def heat(v: Any) -> Any:
    def step(v: Any, _: Any) -> Any:
        padded = jnp.pad(v, 1)
        return v + 0.1 * (padded[:-2] - 2 * v + padded[2:]), None

    return lax.scan(step, v, None, length=3)[0]


WORDS = np.array([3, 4], np.uint32)


def halved(c: Any, x: Any) -> Any:
    return 0.5 * c + x, c * 2


def inner_states(c: Any, xs: Any) -> Any:
    """A loop that stores its states, in each step of another one."""
    return lax.scan(lambda c, x: lax.scan(halved, c, x), c, xs)


def inner_sums(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        d, states = lax.scan(halved, c, x)
        return jnp.tanh(d + states.sum(0)), states.max()

    return lax.scan(step, c, xs)


def two_inner(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        d, states = lax.scan(halved, c, x)
        e, products = lax.scan(lambda d, y: (0.5 * d - y, d * y), d, x)
        return jnp.tanh(e), (products, d, states.min(0))

    return lax.scan(step, c, xs)


def inner_while(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        count, d = lax.while_loop(
            lambda s: (s[1] > 0.1) & (s[0] < 5), lambda s: (s[0] + 1, s[1] * 0.5), (0, c.sum() ** 2)
        )
        return c * 0.5 + d * x, (count, d)

    return lax.scan(step, c, xs)


def leapfrogs(q: Any) -> Any:
    """Only the states are wanted; a sum decides which."""

    def step(q: Any, _: Any) -> Any:
        n, p = lax.fori_loop(0, 3, lambda _, s: (s[0] + s[1], s[1] + s[0].sum()), (q, q * 2))
        q = jnp.where(p @ p > 0, n, q)
        return q, q

    return lax.scan(step, q, None, length=2)[1]


def chained(c: Any, xs: Any) -> Any:
    """A loop over the states of a loop, from that one's last state on."""
    d, states = lax.scan(halved, c, xs)
    return lax.scan(lambda d, y: (0.5 * d - y, d * y), d, states)


def there_and_back(c: Any, xs: Any) -> Any:
    d, states = lax.scan(halved, c, xs)
    return lax.scan(lambda d, y: (0.5 * d - y, d * y), d, states, reverse=True)


def looked_up(places: Any, a: Any, table: Any) -> Any:
    return lax.scan(lambda a, row: (a + row[places], a[0]), a, table)


def slopes(fn: Any, *args: Any) -> Any:
    return jax.grad(lambda *args: sum(jnp.sin(out).sum() for out in jax.tree.leaves(fn(*args))), (0, 1))(*args)


def inner_states_read_again(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        d, states = lax.scan(halved, c, x)
        return jnp.tanh(d + states.sum(0)), states.max()

    return lax.scan(step, c, xs)


def inner_states_carried(c: Any, xs: Any) -> Any:
    """The states of an inner loop are put out, and the next step starts from them."""

    def step(states: Any, x: Any) -> Any:
        d, states = lax.scan(halved, x, states)
        return states, (states, d)

    return lax.scan(step, jnp.outer(jnp.arange(4.0), c), xs[:, 0])


def three_in_a_row(c: Any, xs: Any) -> Any:
    """Each loop reads the states of the one before it, the last one in another order."""
    d, states = lax.scan(halved, c, xs)
    e, others = lax.scan(lambda d, y: (jnp.sin(d) - y, d * y), d, jnp.tanh(states), reverse=True)
    return lax.scan(lambda e, y: (e + y, e * 2), e, others[::-1])[1]


def branch_with_a_loop(sign: Any, c: Any, xs: Any) -> Any:
    return lax.cond(sign > 0, lambda c: lax.scan(lambda c, x: (0.5 * c + x, None), c, xs)[0], jnp.sin, c)


def branch_with_states(sign: Any, c: Any, xs: Any) -> Any:
    return lax.cond(sign > 0, lambda c: lax.scan(halved, c, xs), lambda c: (c, xs * 2), c)


def switched(number: Any, c: Any, xs: Any) -> Any:
    branches = (
        lambda c: lax.scan(lambda c, x: (jnp.sin(c) + x, None), c, xs)[0],
        jnp.tanh,
        lambda c: lax.fori_loop(0, 3, lambda i, c: c * c - i, c),
        lambda c: -c,
    )
    return lax.switch(number, branches, c)


def only_where_it_ends(c: Any, xs: Any) -> Any:
    """The loop in the branch would never end where the branch is not taken."""

    def step(c: Any, x: Any) -> Any:
        climb = partial(lax.while_loop, lambda v: v < 9, lambda v: v + x[0])
        height = lax.cond(x[0] > 0.01, climb, lambda v: v, 0.0)
        return 0.5 * c + height, height

    return lax.scan(step, c, xs)


def beside_nothing(c: Any, xs: Any, nothing: Any) -> Any:
    """What has no elements is carried, read and put out like anything else."""

    def step(carry: Any, x: Any) -> Any:
        c, empty = carry
        return (c + x + empty.sum(), empty * 2 + x[0]), (c, empty)

    return lax.scan(step, (c, nothing), xs)


def until_five(c: Any, nothing: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2 + s[2].sum(), s[2] * 3), (0, c, nothing))


def edit_distance(first: Any, second: Any) -> Any:
    """Each row is the states of a loop along it, and starts from the row before."""

    def row(before: Any, x: Any) -> Any:
        def cell(left: Any, neighbours: Any) -> Any:
            corner, above, y = neighbours
            best = jnp.minimum(jnp.minimum(left, above) + 1, corner + jnp.abs(x - y))
            return best, best

        start = before[0] + 1
        _, cells = lax.scan(cell, start, (before[:-1], before[1:], second))
        return jnp.concatenate([start[None], cells]), None

    return lax.scan(row, jnp.arange(second.shape[0] + 1.0), first)[0][-1]


def two_recursions(x: Any) -> Any:
    """The second loop looks up, in another order, what the first one has noted down."""

    def step(carry: Any) -> Any:
        x, k = carry

        def note(i: Any, carry: Any) -> Any:
            q, notes = carry
            return q - 0.1 * x, notes.at[(k - 1 - i) % 3].set(q.sum())

        q, notes = lax.fori_loop(0, 3, note, (x, jnp.zeros(3)))
        return lax.fori_loop(0, 3, lambda i, q: q + 0.1 * notes[(k + i) % 3], q), k + 1

    return lax.while_loop(lambda carry: carry[1] < 3, step, (x, 0))[0]


PLACES = np.array([[0, 3, -1, 4, 2, 2, 0], [1, 0, 0, -2, 3, 4, -5]])
CELLS = ((3,), (4, 5, 3))
RNN = ((16, 16), (16,), (4, 16), (5, 4, 16))

CASES = (
    Case("states", scanned(lambda c, x: (0.5 * c + x, c)), ((3,), (9, 3)), 1),
    Case("no_xs", lambda x: lax.scan(lambda c, _: (4 * c * (1 - c), c), x, None, length=5), ((),), 1),
    Case("no_steps", lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=0), ((3,),), 0),
    Case("one_step", scanned(lambda c, x: (c * x, c)), ((3,), (1, 3)), 1),
    Case("unrolled", lambda c, xs: lax.scan(lambda c, x: (c + x, c), c, xs, unroll=2), ((3,), (7, 3)), 1),
    Case("backwards", advantages, ((6, 300), (7, 300)), 1),
    Case("swap", lambda a, b: lax.scan(lambda c, _: ((c[1], c[0] + c[1]), c[0]), (a, b), None, length=6), ((), ()), 1),
    Case("recurrent", rnn, RNN, 1),
    Case("lonely_recurrent", rnn, ((16, 16), (16,), (16,), (5, 16)), 1),
    Case("ensemble", lorenz, ((300, 3), (300,)), 1),
    Case("mapped_ensemble", jax.vmap(lorenz), ((300, 3), (300,)), 1),
    Case("ensemble_gradient", jax.grad(lambda *a: lorenz(*a).sum(), (0, 1)), ((300, 3), (300,)), 1),
    Case(
        "nested", scanned(lambda c, x: (lax.fori_loop(0, 3, lambda i, d: 0.5 * d + c * i, x), c)), ((30,), (4, 30)), 1
    ),
    Case("mean_of_states", lambda x: scanned(lambda c, x: (0.5 * c + x, c))(jnp.zeros(3), x)[1].mean(0), ((9, 3),), 1),
    Case("while", newton, (np.array(2, np.float32),), 1),
    Case("mapped_while", jax.vmap(newton), (np.linspace(0.1, 9, 200, dtype=np.float32),), 1),
    Case("traced_bound", lambda x, n: lax.fori_loop(0, n, lambda i, c: 0.5 * c + i, x), ((30,), np.array(6)), 1),
    Case("branches", scanned(lambda c, x: (lax.cond(c > 0, lambda c: c - x, lambda c: c + x, c), c)), ((), (9,)), 1),
    Case(
        "computed_place", lambda t, i: lax.scan(lambda c, i: (c + t[i], c), 0.0, i), ((9,), np.array([0, 3, -1, 5])), 1
    ),
    Case("ring", ring, ((9,),), 1),
    Case("rings", jax.vmap(ring), ((300, 9),), 1),
    Case("noise", noisy, (WORDS, (4,)), 1),
    Case("sandwich", lambda x: rnn(jnp.eye(4), x[0, 0], jnp.sin(x[0]), x * 2)[1].sum(0), ((5, 3, 4),), 1),
    Case("inner_states", inner_states, CELLS, 1),
    Case("inner_states_mapped", jax.vmap(inner_states), ((40, 3), (40, 4, 5, 3)), 1),
    Case("inner_states_gradient", partial(slopes, inner_states), CELLS, 1),
    Case("inner_sums", inner_sums, CELLS, 1),
    Case("two_inner", two_inner, CELLS, 1),
    Case("inner_while", inner_while, ((3,), (4, 3)), 1),
    Case("leapfrogs", leapfrogs, ((5,),), 1),
    Case("chained", chained, ((3,), (4, 3)), 1),
    Case("chained_gradient", partial(slopes, chained), ((3,), (4, 3)), 1),
    Case("there_and_back", there_and_back, ((3,), (4, 3)), 1),
    Case("looked_up", looked_up, (PLACES[0], (7,), (4, 5)), 1),
    Case("looked_up_mapped", jax.vmap(looked_up), (PLACES, (2, 7), (2, 4, 5)), 1),
    Case("shifted_lanes", heat, ((40,),), 1),
    Case("shifted_rows", jax.vmap(heat), ((3, 40),), 1),
    Case("turned_round", lambda x: lax.fori_loop(0, 3, lambda _, c: 0.5 * c[::-1] + c, x), ((37,),), 1),
    Case("rolled", lambda x: lax.fori_loop(0, 3, lambda n, c: 0.5 * jnp.roll(c, n) + c, x), ((21,),), 1),
    Case("cross", lambda x: lax.fori_loop(0, 3, lambda _, c: jnp.pad(c, 1)[2:, 1:-1] + c[:, ::-1], x), ((5, 21),), 1),
    Case("picked", scanned(lambda c, x: (lax.scan(halved, c, x)[1][1], c)), CELLS, 1),
    Case("inner_states_read_again", inner_states_read_again, CELLS, 1),
    Case("inner_states_read_again_mapped", jax.vmap(inner_states_read_again), ((40, 3), (40, 4, 5, 3)), 1),
    Case("inner_states_read_again_gradient", partial(slopes, inner_states_read_again), CELLS, 1),
    Case("inner_states_carried", inner_states_carried, CELLS, 1),
    Case("two_inner_gradient", partial(slopes, two_inner), CELLS, 1),
    Case("three_in_a_row", three_in_a_row, ((3,), (4, 3)), 1),
    Case("three_in_a_row_mapped", jax.vmap(three_in_a_row), ((40, 3), (40, 4, 3)), 1),
    Case("three_in_a_row_gradient", partial(slopes, three_in_a_row), ((3,), (4, 3)), 1),
    Case("branch_taken", branch_with_a_loop, (np.array(1.0), (3,), (4, 3)), 1),
    Case("branch_not_taken", branch_with_a_loop, (np.array(-1.0), (3,), (4, 3)), 1),
    Case("branches_of_lanes", jax.vmap(branch_with_a_loop), ((40,), (40, 3), (40, 4, 3)), 1),
    Case("branch_for_all_lanes", jax.vmap(branch_with_a_loop, (None, 0, 0)), ((), (40, 3), (40, 4, 3)), 1),
    Case("branch_with_states", branch_with_states, (np.array(1.0), (3,), (4, 3)), 1),
    Case("branch_without_states", branch_with_states, (np.array(-1.0), (3,), (4, 3)), 1),
    *(Case(f"switched_{n}", switched, (np.array(n), (3,), (4, 3)), 1) for n in range(-1, 5)),
    Case("only_where_it_ends", only_where_it_ends, ((3,), (9, 3)), 1),
    Case("beside_nothing", beside_nothing, ((3,), (5, 3), (0, 4)), 1),
    Case("while_beside_nothing", until_five, ((3,), (0, 4)), 1),
    Case("edit_distance", edit_distance, ((6,), (5,)), 1),
    Case("edit_distances", jax.vmap(edit_distance), ((40, 6), (40, 5)), 1),
    Case("two_recursions", two_recursions, ((5,),), 1),
    Case("sort_inside", scanned(lambda c, x: (jnp.sort(c + x), c)), ((5,), (3, 5)), 1),
    Case("long_sort_inside", scanned(lambda c, x: (jnp.sort(c + x), c)), ((2100,), (3, 2100)), 0, ("scan",)),
    Case("spread", rnn, ((512, 512), (512,), (2, 512), (2, 2, 512)), 1),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_loops(case: Case) -> None:
    arguments = case.arguments()
    program = j2t.transpile(case.fn, *arguments)
    left = tuple(leftover.primitive for leftover in program.leftovers)
    assert (len(program.kernels), left) == (case.kernels, case.leftovers), program.explain()
    assert all(leftover.why for leftover in program.leftovers)
    mine, wanted = jax.tree.leaves(program(*arguments)), jax.tree.leaves(jax.jit(case.fn)(*arguments))
    for got, want in zip(mine, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_the_gradient_of_a_recurrent_network() -> None:
    arguments = Case("", rnn, RNN, 0).arguments()
    gradient = jax.grad(lambda *a: rnn(*a)[1].sum(), (0, 1, 2, 3))
    program = j2t.transpile(gradient, *arguments)
    assert len(program.kernels) <= 4
    assert {leftover.primitive for leftover in program.leftovers} <= {"dot_general"}
    for got, want in zip(program(*arguments), jax.jit(gradient)(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_a_loop_keeps_is_loaded_before_it() -> None:
    (kernel,) = j2t.transpile(rnn, *Case("", rnn, RNN, 0).arguments()).kernels
    before, loop = re.split("for t(?:_round)? in ", kernel.source)
    assert "weights_ptr" in before.split("def rnn")[1] and "weights_ptr" not in loop
    assert "xs_ptr" in loop


def test_a_body_that_changes_its_carry_is_jaxs_own_error() -> None:
    with pytest.raises(TypeError, match="carry"):
        j2t.transpile(lambda x: lax.scan(lambda c, _: (c[:1], None), x, None, length=2), np.ones(3, np.float32))
