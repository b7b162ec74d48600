"""Powers by halves: as exact as the general one, and the same where a root is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.numbers.decompose import decompose
from tests.normalize.passing import SPECIAL, after, primitives_of, traced

HALVES = [n / 2 for n in range(-6, 7) if n]
FEW_ULPS = 4  # as many as CUDA's own may be off


def power(y: float) -> Any:
    return lambda x: lax.pow(x, jnp.asarray(y, x.dtype))


@pytest.mark.parametrize("y", HALVES)
def test_no_general_power_is_left(y: float) -> None:
    left = primitives_of(decompose(traced(power(y), SPECIAL)))
    assert "pow" not in left and "integer_pow" not in left


@pytest.mark.parametrize("y", [0.3, 3.5, -3.5, 0.25, 1e9])
def test_other_powers_stay(y: float) -> None:
    assert primitives_of(after(decompose, power(y), SPECIAL)) == ["pow"]


@pytest.mark.parametrize("y", HALVES)
def test_digits(y: float) -> None:
    x = np.exp(np.random.default_rng(0).normal(size=4000) * 8).astype(np.float32)
    found = np.asarray(j2t.fuse(power(y), backend="interpret", strict=True)(x))
    with np.errstate(over="ignore"):
        exact = np.power(x.astype(np.float64), y)
        near = exact.astype(np.float32)
    usual = np.isfinite(near) & (near > 1e-37)
    off = np.abs(found[usual] - exact[usual]) / np.spacing(near[usual])
    assert usual.sum() > 3000 and off.max() < FEW_ULPS


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("y", HALVES)
def test_numbers_without_a_root(y: float, dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.5, 1.0]).astype(dtype)
        found = np.asarray(j2t.fuse(power(y), backend="interpret", strict=True)(x)).astype(np.float64)
        expected = np.asarray(jax.jit(power(y))(x)).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-2 if np.dtype(dtype).itemsize == 2 else 1e-6)
    assert np.array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))
