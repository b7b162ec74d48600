"""Loops of one kernel within each other: which may be, which belong together, and which results wait for which."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.special import logsumexp

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Role
from tests.policies import planned_with


def transport(x: Any, y: Any) -> Any:
    """Sums along columns, of these sums along rows, and of those along columns again, by another scale.

    With what is carried in lanes, the first two are wanted along axes of their own.
    """

    def step(state: Any, _: Any) -> Any:
        cost = jnp.square(x).sum(1)[:, None] + jnp.square(y).sum(1) - 2 * x @ y.T
        f, g, _ = state
        g = g - logsumexp(f[:, None] + g - cost, axis=0)
        f = f - logsumexp(f[:, None] + g - cost, axis=1)
        error = jnp.abs(jnp.exp(logsumexp((f[:, None] + g - cost) / 2, axis=0) + g) - 1).sum()
        return (f, g, error), error

    zeros = jnp.zeros(len(x))
    return lax.scan(step, (zeros, zeros, jnp.inf), None, length=3)


def points(count: int) -> Any:
    return np.random.default_rng(count).normal(size=(2, count, 3)).astype(np.float32)


def walked(kernel: Any, size: int) -> list[str]:
    return [axis.name for axis in kernel.axes if axis.role is Role.LOOP and axis.size == size]


def test_sums_of_rows_of_sums_of_columns_are_planned_at_full_size() -> None:
    (kernel,) = j2t.transpile(transport, *points(256), contractions="triton").kernels
    assert walked(kernel, 256) == ["k"]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_of_two_axes_that_sums_of_sums_cross_only_one_is_walked(backend: str) -> None:
    x, y = points(16)
    little = {"resident": 64}
    with planned_with(blocks=little):
        (kernel,) = j2t.transpile(transport, x, y, contractions="triton").kernels
        got = j2t.fuse(transport, backend=backend, contractions="triton")(x, y)
    assert walked(kernel, 16) == ["k"]
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(transport)(x, y)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outside", [True, False])
def test_gradients_of_sums_of_sums_with_little_room(outside: bool) -> None:
    x, y = points(16)

    def loss(function: Any) -> Any:
        return lambda x, y: jnp.sin(function(x, y)[1]).sum()

    little = {"resident": 64}
    with planned_with(blocks=little):
        if outside:
            got = jax.grad(loss(j2t.fuse(transport, backend="interpret", contractions="triton")))(x, y)
        else:
            got = j2t.fuse(jax.grad(loss(transport)), backend="interpret", contractions="triton")(x, y)
    np.testing.assert_allclose(got, jax.jit(jax.grad(loss(transport)))(x, y), rtol=1e-3, atol=1e-3)


def sums_of_squares(x: Any) -> Any:
    """What the second sums of rows are made of is there when the first ones have been summed up."""

    def step(c: Any, _: Any) -> Any:
        first = jnp.square(jnp.sin(x * c).mean(1)).mean()
        second = jnp.tanh(jnp.cos(x * first).mean(1)).mean()
        return second, first

    return lax.scan(step, 0.3, None, length=3)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_a_loop_in_a_loop_belongs_to_that_one_only(backend: str) -> None:
    """Loops along the rows, one after the other, each have one along columns in them."""
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    little = {"resident": 16}
    with planned_with(blocks=little, loops={"kept_by_program": 64}):
        (kernel,) = j2t.transpile(sums_of_squares, x, contractions="triton").kernels
        got = j2t.fuse(sums_of_squares, backend=backend, contractions="triton")(x)
    assert walked(kernel, 64) == ["k", "k1"]
    np.testing.assert_allclose(got[0], jax.jit(sums_of_squares)(x)[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], jax.jit(sums_of_squares)(x)[1], rtol=1e-5)


def a_number_of_a_later_loop(a: Any) -> Any:
    """`m` waits for a loop that reads the states; these are read at `m` as well, and so is what stands before both."""

    def step(a: Any, _: Any) -> Any:
        near = jnp.exp(-a * a)
        states = lax.fori_loop(0, 3, lambda i, c: jnp.roll(c, 1) * 0.9 + 0.1 * jnp.sin(c), a)

        def go_on(s: Any) -> Any:
            return (s[0] < 9) & (s[1] < states.sum() + 2)

        m = lax.while_loop(go_on, lambda s: (s[0] + 1, s[1] + jnp.abs(states[s[0] % 8])), (0, 0.0))[0] % 8
        return a * 0.5 + (near[m] + states[m]) * 0.1, near[m]

    return lax.scan(step, a, None, length=4)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_results_of_a_loop_wait_for_the_numbers_in_their_places(backend: str) -> None:
    a = np.random.default_rng(2).normal(size=8).astype(np.float32)
    program = j2t.transpile(a_number_of_a_later_loop, a)
    assert len(program.kernels) == 1 and not program.leftovers
    got = j2t.fuse(a_number_of_a_later_loop, backend=backend)(a)
    for one, other in zip(got, jax.jit(a_number_of_a_later_loop)(a), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
