"""The derivative of softplus is a sigmoid, and has its digits; what only looks like it stays as it is."""

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
from tests.normalize.passing import SPECIAL, primitives_of, traced

USED: dict[str, Callable[[Any], Any]] = {
    "softplus": jax.grad(lambda x: jnp.sum(jax.nn.softplus(x))),
    "log_sigmoid": jax.grad(lambda x: jnp.sum(jax.nn.log_sigmoid(x))),
    "mish": jax.grad(lambda x: jnp.sum(jax.nn.mish(x))),
    "cross entropy": jax.grad(lambda x: jnp.sum(jnp.logaddexp(x, 0.0) - 0.3 * x)),
}
DTYPES = (np.float32, np.float16, jnp.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", USED)
def test_a_sigmoid_is_there(name: str, dtype: Any) -> None:
    assert "logistic" in primitives_of(normalize(traced(USED[name], SPECIAL.astype(dtype))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", USED)
def test_its_values(name: str, dtype: Any) -> None:
    rng = np.random.default_rng()
    for x in (SPECIAL.astype(dtype), (rng.standard_normal(100) * 10.0 ** rng.uniform(-2, 2, 100)).astype(dtype)):
        got = np.asarray(jax.jit(j2t.fuse(USED[name], backend="interpret"))(x), np.float64)
        wanted = np.asarray(jax.jit(USED[name])(x), np.float64)
        near = np.abs(got - wanted) <= 64 * float(jnp.finfo(dtype).eps) * np.maximum(np.abs(wanted), 1)
        assert np.all(near | (got == wanted) | (np.isnan(got) & np.isnan(wanted))), (x, got, wanted)


def test_its_digits_far_from_zero() -> None:
    """Where JAX subtracts 80.0 from 80.0 + exp(-80.0)."""
    x = np.random.default_rng().uniform(-87, 87, 500).astype(np.float32)
    got = np.asarray(jax.jit(j2t.fuse(USED["log_sigmoid"], backend="interpret"))(x))
    np.testing.assert_allclose(got, 1 / (1 + np.exp(x.astype(np.float64))), rtol=1e-6)


def _other(x: Any, below: float, sign: int) -> Any:
    total = lax.select(x != x, x, lax.max(x, _like(x, below)) + lax.log1p(lax.exp(sign * lax.abs(x))))
    zeros = jnp.zeros_like(x)
    return lax.exp(lax.select(x == jnp.inf, zeros, x) - lax.select(total == jnp.inf, zeros, total))


def _like(x: Any, value: float) -> Any:
    return np.asarray(value, x.dtype)


@pytest.mark.parametrize("below, sign, is_softplus", [(0.0, -1, True), (1.0, -1, False), (0.0, 1, False)])
def test_what_only_looks_like_it(below: float, sign: int, is_softplus: bool) -> None:
    found = primitives_of(normalize(traced(lambda x: _other(x, below, sign), SPECIAL)))
    assert ("logistic" in found) == is_softplus
