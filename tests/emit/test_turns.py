"""Tiles with their dimensions in another order, in loops, where Triton may never come back from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t


def repeated(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=5)[0]


def column(c: Any) -> Any:
    return jnp.tanh(c @ c[:, 1])[None, :] + 0.5 * c


def largest(c: Any) -> Any:
    return (c.T * c).max(0) + 0.5 * c


def mirrored(c: Any) -> Any:
    return c.T & ~jnp.eye(3, dtype=bool) | c.any(0)[:, None]


def of_a_batch(c: Any) -> Any:
    return jnp.tanh(jnp.einsum("bij,bj->bi", c, c[:, 0]))[:, None, :] + 0.5 * c


def of_two(carried: Any) -> Any:
    """Sums of floats alone are reason enough."""
    c, d = carried
    return 0.5 * c + jnp.tanh((c.T * c).sum(0)), c.T + d


RANDOM = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize(
    ("step", "x"),
    [(column, RANDOM), (largest, RANDOM), (mirrored, RANDOM > 0), (of_a_batch, np.stack([RANDOM, -RANDOM]))]
    + [(of_two, (RANDOM[:2, :2], RANDOM[1:, 1:]))],
    ids=["column", "largest", "mirrored", "of_a_batch", "of_two"],
)
def test_a_turned_state_that_is_reduced(step: Callable[[Any], Any], x: Any, backend: str) -> None:
    function = repeated(step)
    found = j2t.fuse(function, backend=backend, strict=True)(x)
    np.testing.assert_allclose(found, jax.jit(function)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_gradients_of_a_turned_state(backend: str) -> None:
    def loss(x: Any) -> Any:
        return (repeated(column)(x) ** 2).sum()

    found = jax.jit(jax.grad(j2t.fuse(loss, backend=backend, strict=True)))(RANDOM)
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(RANDOM), rtol=1e-4, atol=1e-5)
