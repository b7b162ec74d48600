"""Derivative and batching rules of the user's that close over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

SLOPE = jnp.arange(1.0, 5.0)
X = np.linspace(-1, 1, 4, dtype=np.float32)


@jax.custom_vjp
def by_vjp(x: Any) -> Any:
    return jnp.sin(x)


by_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * SLOPE * x,))


@jax.custom_jvp
def by_jvp(x: Any) -> Any:
    return jnp.sin(x)


@by_jvp.defjvp
def _by_jvp(primals: Any, tangents: Any) -> Any:
    return by_jvp(*primals), tangents[0] * SLOPE * jnp.cos(primals[0])


@jax.custom_batching.custom_vmap
def by_vmap(x: Any) -> Any:
    return jnp.sin(x)


@by_vmap.def_vmap
def _by_vmap(size: int, batched: Any, x: Any) -> Any:
    return jnp.sin(x) + SLOPE, True


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: (function(x) * x).sum()


@pytest.mark.parametrize("rule", [by_vjp, by_jvp])
def test_gradients(rule: Callable[..., Any]) -> None:
    expected = jax.jit(jax.value_and_grad(total(rule)))(X)
    fused = j2t.fuse(total(rule), backend="interpret")
    value, gradient = jax.value_and_grad(fused)(X)
    pair = j2t.transpile(total(rule), X, grad=0)
    for found in ((value, gradient), pair(X)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
    rows = np.stack([X, 2 * X])
    np.testing.assert_allclose(
        jax.vmap(jax.grad(fused))(rows), jax.vmap(jax.jit(jax.grad(total(rule))))(rows), rtol=1e-5
    )


def test_batches() -> None:
    rows = np.stack([X, 2 * X])
    fused = j2t.fuse(by_vmap, backend="interpret")
    np.testing.assert_allclose(jax.vmap(fused)(rows), jax.vmap(jax.jit(by_vmap))(rows), rtol=1e-5)
