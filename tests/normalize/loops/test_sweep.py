"""Loops whose carried values are affine in those of the step before, in tiles of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import traced

RNG = np.random.default_rng(5)
STEPS, LANES = 48, 3
INF, NAN = np.float32(np.inf), np.float32(np.nan)


def linear(c: Any, a: Any, b: Any, reverse: bool = False) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = x[0] * c + x[1]
        return c, c

    return lax.scan(step, c, (a, b), reverse=reverse)


def read_before(c: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda c, x: (x[1] - c / (2.0 + x[0] * x[0]), jnp.tanh(c)), c, (a, b))


def reset(c: Any, a: Any, b: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = jnp.where(x[0] > 1, x[1], 0.5 * c - x[1])
        return c, c

    return lax.scan(step, c, (a, b), reverse=True)


def one_flag(c: Any, a: Any, b: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return lax.cond(x[0][0] > 1, lambda: x[1], lambda: 0.5 * c), c

    return lax.scan(step, c, (a, b))


def after_each_other(c: Any, a: Any, b: Any) -> Any:
    """What one value is carries into the next; one is only moved on, one only summed."""

    def step(carry: Any, x: Any) -> Any:
        old, c, d, total = carry
        d = d - (d * 0.25 - c * x[1])
        return (x[0], 0.5 * c + old, d, total + d), (c, d)

    return lax.scan(step, (c, c, c, c), (a, b))


def segments(c: Any, a: Any, b: Any) -> Any:
    """What an episode adds up begins again where the next one does."""
    return lax.scan(lambda c, x: (jnp.where(x[0] > 1, 0, c) * 0.9 + x[1], c), c, (a, b))


def largest(c: Any, a: Any, b: Any, reverse: bool = False) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = jnp.maximum(c + x[0], x[1])
        return c, c

    return lax.scan(step, c, (a, b), reverse=reverse)


def smallest_before(c: Any, a: Any, b: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        after = jnp.minimum(jnp.minimum(c - x[0], x[1]), jnp.where(x[0] > 0, c, x[1] + 1)) + 0.25
        return after, jnp.tanh(c)

    return lax.scan(step, c, (a, b), reverse=True)


def second_order(c: Any, a: Any, b: Any, reverse: bool = False) -> Any:
    """Two values that read each other, as those of a filter do."""

    def step(carry: Any, x: Any) -> Any:
        s, t = carry
        y = x[1] + s
        return (x[0] * y + t, 0.3 * x[1] - 0.5 * y), y

    return lax.scan(step, (c, 0.5 * c), (a, b), reverse=reverse)


def autoregressive(c: Any, a: Any, b: Any) -> Any:
    """Three of them, of which two are moved on, and only what comes after a step is read."""

    def step(carry: Any, x: Any) -> Any:
        one, two, three = carry
        new = 0.5 * one + x[0] * two * 0.3 - three / 4 + x[1]
        return (new, one, two), new

    return lax.scan(step, (c, c, -c), (a, b), reverse=True)


def four(c: Any, a: Any, b: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        p, q, r, s = carry
        after = 0.5 * q + x[0] * 0.2 * r, jnp.where(x[1] > 0, p, 0.1 * s) + x[1], 0.4 * (s - p), 0.3 * p + x[0] - r / 3
        return after, p - s

    return lax.scan(step, (c, c, c, 2 * c), (a, b))


def best_of_two(c: Any, a: Any, b: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        p, q = carry
        p, q = jnp.maximum(p + x[0], q - x[1]), jnp.maximum(p, q + x[0]) - 0.25
        return (p, q), p

    return lax.scan(step, (c, -c), (a, b))


def soft(c: Any, a: Any, b: Any, reverse: bool = False) -> Any:
    """The logarithm of a sum over all paths so far."""

    def step(c: Any, x: Any) -> Any:
        c = jnp.logaddexp(c + x[0], x[1])
        return c, c

    return lax.scan(step, c, (a, b), reverse=reverse)


def soft_before(c: Any, a: Any, b: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return jnp.logaddexp(x[1], jnp.where(x[0] > 1, -jnp.inf, c) - x[0]) + 0.25, jnp.tanh(c)

    return lax.scan(step, c, (a, b), reverse=True)


def soft_stacked(c: Any, a: Any, b: Any) -> Any:
    """As a reduction along an axis of two."""

    def step(c: Any, x: Any) -> Any:
        c = jax.nn.logsumexp(jnp.stack([c + x[0], x[1]], -1), -1)
        return c, jax.nn.logsumexp(jnp.array([x[0], c - 1]), 0)

    return lax.scan(step, c, (a, b))


def soft_of_two(c: Any, a: Any, b: Any) -> Any:
    """Of which one does not lead to itself."""

    def step(carry: Any, x: Any) -> Any:
        p, q = carry
        return (jnp.logaddexp(p + x[0], jnp.logaddexp(q, x[1])), p - x[0]), q

    return lax.scan(step, (c, -c), (a, b))


def inputs(lanes: tuple[int, ...] = (LANES,), steps: int = STEPS) -> list[np.ndarray]:
    shapes = lanes, (steps, *lanes), (steps, *lanes)
    return [RNG.normal(size=shape).astype(np.float32) * np.float32(0.8) for shape in shapes]


def fibonacci(c: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda carry, x: ((carry[1], carry[0] * x[0] + carry[1] + x[1]), carry), (c, c), (a, b))


COUPLED = (second_order, autoregressive, four, best_of_two, soft_of_two)
SOFT = (soft, soft_before, soft_stacked, soft_of_two)


def compared(function: Callable[..., Any], *args: Any, tolerance: float = 2e-5) -> None:
    assert "scanned" in str(normalize(traced(function, *args)))
    expected, found = jax.jit(function)(*args), j2t.fuse(function, backend="interpret", strict=True)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(ours), np.asarray(theirs)
        scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
        np.testing.assert_allclose(one, other, tolerance, tolerance * scale)


@pytest.mark.parametrize(
    "function",
    [
        linear,
        read_before,
        reset,
        after_each_other,
        segments,
        largest,
        smallest_before,
        soft,
        soft_before,
        soft_stacked,
        *COUPLED,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize(("lanes", "steps"), [((), 32), ((LANES,), STEPS), ((2, 3), 33), ((130,), 256)], ids=str)
def test_values_are_those_of_steps(function: Callable[..., Any], lanes: tuple[int, ...], steps: int) -> None:
    compared(function, *inputs(lanes, steps))


@pytest.mark.parametrize("steps", [256, 6144])
def test_coefficients_that_lanes_share_leave_these_to_many_programs(steps: int) -> None:
    """Whether they may be combined each program finds out for itself, in each tile."""
    (c, _, b), (_, a, _) = inputs((256,), steps), inputs((), steps)
    (kernel,) = j2t.transpile(linear, c, a, b).kernels
    assert kernel.grid[0] >= 32


def test_coefficients_that_lanes_share() -> None:
    (c, _, b), (_, a, _) = inputs((256,), 256), inputs((), 256)
    compared(linear, c, a, b)
    a[100:] *= 1e3
    compared(linear, c[:7], a, b[:, :7])
    gradient = jax.grad(lambda *args: jnp.sin(linear(*args)[1]).sum(), (0, 1, 2))
    compared(gradient, *inputs((256,), 64)[:1], *inputs((), 64)[1:2], *inputs((256,), 64)[2:], tolerance=2e-4)


def test_one_flag_for_all_lanes() -> None:
    compared(one_flag, *inputs())


@pytest.mark.parametrize(
    "function", [linear, read_before, reset, segments, largest, soft, soft_before, *COUPLED], ids=lambda f: f.__name__
)
def test_gradients(function: Callable[..., Any]) -> None:
    def gradient(*args: Any) -> Any:
        return jax.grad(lambda *args: sum(jnp.sin(x).sum() for x in jax.tree.leaves(function(*args))), (0, 1, 2))(*args)

    compared(gradient, *inputs())


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, INF), (0, NAN), (1, INF), (1, NAN), (1, 1e30), (1, 0), (2, INF), (2, NAN), (2, 3e38)],
    ids=str,
)
@pytest.mark.parametrize(
    "function", [linear, reset, largest, smallest_before, second_order, best_of_two], ids=lambda f: f.__name__
)
def test_what_is_no_number_is_where_steps_have_it(function: Callable[..., Any], place: int, value: Any) -> None:
    args = inputs()
    args[place][5 if place else 1, ...] = value
    compared(function, *args)


@pytest.mark.parametrize("value", [-INF, INF, NAN, 3e38], ids=str)
@pytest.mark.parametrize("function", SOFT, ids=lambda f: f.__name__)
def test_nothing_yet_is_the_zero_of_a_ring(function: Callable[..., Any], value: Any) -> None:
    for place in range(3):
        args = inputs()
        args[place][5 if place else 1, ...] = value
        compared(function, *args)
    c, a, b = inputs()
    a[3], b[:7] = -INF, -INF
    compared(function, c - INF, a, b)
    a[9] = value
    compared(function, c - INF, a, b)


@pytest.mark.parametrize("function", [soft, largest], ids=lambda f: f.__name__)
def test_nothing_yet_takes_no_steps_one_by_one(function: Callable[..., Any]) -> None:
    c, a, b = inputs()
    b[:7] = -INF
    whole = normalize(traced(function, c, a, b))
    (repeat,) = (eqn for eqn in whole.jaxpr.eqns if eqn.primitive.name == "repeat")
    going = repeat.invars[repeat.params["num_consts"]]
    found = jax.core.eval_jaxpr(whole.jaxpr.replace(outvars=[going]), whole.consts, c - INF, a, b)
    assert not np.any(found)


@pytest.mark.parametrize(
    "coefficients",
    [
        np.resize(np.float32([1e30, 1e-30]), STEPS),
        np.resize(np.float32([1e-30, 1e30]), STEPS),
        np.where(np.arange(STEPS) < STEPS // 2, np.float32(1e-3), np.float32(1e3)),
        np.resize(np.float32([2, 2, 2, 0]), STEPS),
        np.full(STEPS, 9, np.float32),
    ],
    ids=["large first", "small first", "small, then large", "zeros", "growing"],
)
@pytest.mark.parametrize("beside", [0, 1])
def test_products_of_coefficients_may_not_fit(coefficients: np.ndarray, beside: float) -> None:
    c, _, b = inputs()
    compared(linear, c, np.repeat(coefficients[:, None], LANES, 1), b * np.float32(beside))


@pytest.mark.parametrize("size", [1.0, 30.0, 1e19, 1e-30])
def test_products_of_matrices_may_not_fit(size: float) -> None:
    c, a, b = inputs()
    a = np.where(np.arange(STEPS) % 4 < 3, np.float32(size), np.float32(1 / size))[:, None] + 0 * a
    compared(second_order, c, a, b, tolerance=2e-4)
    compared(second_order, 0 * c, a, 0 * b)


def test_what_cancels_out_is_found_step_by_step() -> None:
    """A sum of large products would not have a digit where each step leaves what is carried as it is."""

    def function(c: Any, a: Any, b: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            p, q = carry
            return (x[0] * p + x[1] * q, x[1] * p + x[0] * q), p

        return lax.scan(step, (c, -c), (a, b))

    c, _, _ = inputs()
    one = np.full((STEPS, LANES), 1.5, np.float32)
    _, found = j2t.fuse(function, backend="interpret", strict=True)(c, one, one - 1)
    np.testing.assert_allclose(np.asarray(found), np.broadcast_to(c, (STEPS, LANES)), 1e-5)


@pytest.mark.parametrize("function", [second_order, four], ids=lambda f: f.__name__)
def test_what_lanes_sum_is_summed_after_the_loop(function: Callable[..., Any]) -> None:
    def gradient(c: Any, a: Any, b: Any, scale: Any) -> Any:
        return jax.grad(lambda z: sum(jnp.sin(x).sum() for x in jax.tree.leaves(function(c, z * a, b))))(scale)

    args = [*inputs((40,), 512), np.float32(0.7)]
    compared(gradient, *args)
    compared(jax.grad(lambda *args: (gradient(*args) * args[1]).sum()), *args, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8])
def test_whole_numbers_are_exact(dtype: Any) -> None:
    args = [(x * 9).astype(dtype) for x in inputs()]
    compared(linear, *args, tolerance=0)
    compared(fibonacci, *args, tolerance=0)


def test_an_exact_order_is_that_of_the_steps() -> None:
    args = inputs()
    assert "scanned" not in str(normalize(traced(linear, *args), exact_order=True))
    ordered = j2t.fuse(linear, backend="interpret", strict=True, exact_order=True)
    text = j2t.transpile(linear, *args, exact_order=True).kernels[0].source
    assert "associative_scan" not in text
    c, a, b = args
    for one, other, found in zip(a, b, np.asarray(ordered(c, a, b)[1])):
        c = one * c + other
        np.testing.assert_array_equal(found, c)


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (c * c + x, c),
        lambda c, x: (jnp.maximum(c, x) + c, c),
        lambda c, x: (jnp.maximum(c * x, x), c),
        lambda c, x: (jnp.minimum(jnp.maximum(c, x), 1), c),
        lambda c, x: (x - jnp.maximum(c, x), c),
        lambda c, x: (jnp.roll(c, 1) * 0.5 + x, c),
        lambda c, x: (x / (c + 3), c),
        lambda c, x: (jnp.logaddexp(c, x) + c, c),
        lambda c, x: (jnp.logaddexp(2 * c, x), c),
        lambda c, x: (jax.nn.logsumexp(jnp.stack([c, x, x]), 0), c),
        lambda c, x: (jax.nn.logsumexp(jnp.stack([c, x]), 0, b=jnp.array([[2.0], [1.0]])), c),
        lambda c, x: (jnp.log(jnp.exp(c) + jnp.exp(x)), c),
        lambda c, x: (jnp.logaddexp(jnp.maximum(c, x), x), c),
        lambda c, x: (jnp.where(c > 0, c, x), c),
        lambda c, x: (c + 0.5 * (x - c).astype(jnp.bfloat16).astype(jnp.float32), c),
    ],
)
def test_what_is_left_alone(step: Callable[..., Any]) -> None:
    c, x, _ = inputs()
    assert "scanned" not in str(normalize(traced(lambda c, x: lax.scan(step, c, x), c, x)))


@pytest.mark.parametrize("start", [-INF, INF, NAN, np.float32(-3e38)], ids=str)
@pytest.mark.parametrize("coefficients", [[-3e38, 3e38], [3e38, 3e38, -3e38], [-INF, 1]], ids=str)
def test_sums_of_terms_may_not_fit(start: Any, coefficients: list[float]) -> None:
    c, a, b = inputs()
    compared(largest, c * 0 + start, np.resize(np.float32(coefficients), STEPS)[:, None] + 0 * a, b)
    compared(largest, c * 0 + start, a, b - INF)


def test_a_batch() -> None:
    c, a, b = inputs((4, 2))
    compared(jax.vmap(linear, (0, 1, 1)), c, a, b)
