"""Loops in a step, and parts of them, that no step changes: before the loop around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import traced

RNG = np.random.default_rng(29)


def solved(y: Any, b: Any) -> Any:
    """A tridiagonal system, whose factors are made of b alone."""

    def down(carry: Any, x: Any) -> Any:
        c, d = carry
        c = 1.0 / (b - c)
        d = (x + d) * c
        return (c, d), (c, d)

    zero = jnp.zeros_like(y[0])
    rows = lax.scan(down, (zero, zero), y)[1]
    return lax.scan(lambda x, row: (row[1] + row[0] * x,) * 2, zero, rows, reverse=True)[1]


def in_time(y: Any, b: Any) -> Any:
    return lax.scan(lambda y, _: (0.3 * solved(y, b), y[0]), y, None, length=12)


def until(y: Any, b: Any) -> Any:
    return lax.while_loop(lambda y: jnp.abs(y).max() > 1e-2, lambda y: 0.2 * solved(y, b), y)


def after_each_other(y: Any, b: Any) -> Any:
    """The second loop is the same in each step since the first one is."""

    def step(y: Any, _: Any) -> Any:
        roots, path = lax.scan(lambda x, _: (0.5 * (x + b / x),) * 2, b, None, length=16)
        total, sums = lax.scan(lambda t, r: (jnp.sin(t + roots / r),) * 2, b, path)
        return jnp.cos(y) * total + sums[3], None

    return lax.scan(step, y, None, length=20)[0]


def with_another(y: Any, b: Any) -> Any:
    """What is put out is made of what is the same and of what is not, of xs and of what is known."""

    def step(y: Any, t: Any) -> Any:
        def inner(carry: Any, x: Any) -> Any:
            c, n, d = carry
            c = jnp.tanh(c * b + x[0])
            return (c, n + 1, 0.5 * d * c - x[1]), (c, d, jnp.sin(c + n), y[0] * c)

        carried, ys = lax.scan(inner, (b, t, y[0]), (jnp.arange(float(len(y))), y))
        return jnp.tanh(0.5 * y + sum(y.mean() for y in ys) + carried[0] - carried[2]), carried[1]

    return lax.scan(step, y, jnp.arange(20))


def in_three(y: Any, b: Any) -> Any:
    def outer(y: Any, _: Any) -> Any:
        return in_time(y * 0.5, b)[0], None

    return lax.scan(outer, y, None, length=3)[0]


def inputs(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    y = RNG.normal(size=shape).astype(np.float32)
    return y, RNG.uniform(2.5, 3.0, shape[1:]).astype(np.float32)


MOVED = (in_time, until, after_each_other, with_another, in_three)


def loops(jaxpr: Any, depth: int = 1) -> Iterator[tuple[int, Any]]:
    """How many loops there are around it, and each loop."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in LOOPS:
            yield depth, eqn
            yield from loops(eqn.params["jaxpr"].jaxpr, depth + 1)


def close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, 2e-4, 2e-5 * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("function", MOVED, ids=lambda f: f.__name__)
def test_values(function: Callable[..., Any], backend: str) -> None:
    args = inputs(32, 3)
    close(j2t.fuse(function, backend=backend, strict=True)(*args), jax.jit(function)(*args))


@pytest.mark.parametrize("function", [each for each in MOVED if each is not until], ids=lambda f: f.__name__)
def test_gradients(function: Callable[..., Any]) -> None:
    def loss(y: Any, b: Any, run: Any = function) -> Any:
        return sum(jnp.sin(each).sum() for each in jax.tree.leaves(run(y, b)) if each.dtype == np.float32)

    args = inputs(16, 3)
    expected = jax.jit(jax.grad(loss, (0, 1)))(*args)
    fused = j2t.fuse(function, backend="interpret")
    close(j2t.fuse(jax.grad(loss, (0, 1)), backend="interpret")(*args), expected)
    close(jax.grad(lambda *args: loss(*args, run=fused), (0, 1))(*args), expected)


@pytest.mark.parametrize(
    ("function", "before"),
    [(in_time, 1), (until, 1), (after_each_other, 2), (with_another, 1), (in_three, 1)],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_is_the_same_comes_before(function: Callable[..., Any], before: int) -> None:
    outermost = [eqn for depth, eqn in loops(normalize(traced(function, *inputs(1024, 64))).jaxpr) if depth == 1]
    assert len(outermost) == before + 1


def test_what_steps_make_of_what_they_carry_stays() -> None:
    def function(y: Any, b: Any) -> Any:
        return lax.scan(lambda c, _: ((solved(c[0], c[1]), c[1] * 1.01), None), (y, b), None, length=20)[0]

    outermost = [eqn for depth, eqn in loops(normalize(traced(function, *inputs(256, 64))).jaxpr) if depth == 1]
    assert len(outermost) == 1


def test_few_steps_are_no_reason_for_one_more_kernel() -> None:
    closed = normalize(traced(in_time, *inputs(4, 3)))
    assert isinstance(closed, jex.ClosedJaxpr) and len([1 for depth, _ in loops(closed.jaxpr) if depth == 1]) == 1
