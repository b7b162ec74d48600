"""Where sums nearly cancel, kernels and XLA differ in more than the last digit: kernels are as near to the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

SEEDS = 64
NO_WORSE = 1.1  # times XLA's error, root mean square over all seeds
ANOTHER_ORDER = 4.0  # … of sums of numbers that are all alike: which order is lucky depends on how many there are


def windows(x: Any, size: int = 4) -> Any:
    return jnp.stack([x[i : x.shape[0] - size + 1 + i] for i in range(size)], -1)


def of_sums(x: Any) -> Any:
    sums = windows(x).sum(-1)
    return ((sums[4:] - sums[:-4]) ** 2).sum()


def normalised(x: Any) -> Any:
    return (x - x.mean()) * lax.rsqrt(jnp.var(x) + 1e-5)


DIFFERENCES: dict[str, Callable[[Any], Any]] = {
    "neighbours": lambda x: ((x[1:] - x[:-1]) ** 2).sum(),
    "bent": lambda x: jnp.tanh(x[1:] - x[:-1]).sum(),
    "from_the_mean": lambda x: ((windows(x) - windows(x).mean(-1, keepdims=True)) ** 2).sum(),
    "gathered": lambda x: ((x[jnp.arange(13)[:, None] + jnp.arange(4)] - x[:13, None]) ** 2).sum(),
    "sums": of_sums,
}
CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "variance": jnp.var,
    "square_of_the_mean": lambda x: (x * x).mean() - x.mean() ** 2,
    "normalised": normalised,
    "gradient_of_the_variance": jax.grad(jnp.var),
}


def errors(function: Callable[[Any], Any], x: Any) -> tuple[float, float]:
    """The root mean square of what is wrong: of ours, of XLA's."""
    batch = jax.vmap(function)
    found = [jax.jit(j2t.fuse(batch, backend="interpret"))(x), jax.jit(batch)(x)]
    with jax.enable_x64(True):
        right = np.asarray(jax.jit(batch)(x.astype(np.float64)))
    ours, theirs = (float(np.sqrt(np.mean((np.asarray(each, np.float64) - right) ** 2))) for each in found)
    return ours, theirs


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_gradients_of_window_differences(name: str, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((SEEDS, 16)).astype(dtype)
    ours, theirs = errors(jax.grad(DIFFERENCES[name]), x)
    assert ours <= NO_WORSE * theirs


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 100, 1000])
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_variance_that_is_zero_but_for_rounding(name: str, size: int, dtype: Any) -> None:
    """Of numbers that are all alike, or that differ in their last digit."""
    rng, eps = np.random.default_rng(size), float(jnp.finfo(dtype).eps)
    x = rng.standard_normal((SEEDS, 1)) * 10 * np.ones(size)
    x[::2] *= 1 + eps * rng.integers(0, 2, (SEEDS // 2, size))
    ours, theirs = errors(CONSTANTS[name], x.astype(dtype))
    # XLA rounds the mean of the squares and the square of the mean to the same 16 bits, if all numbers are alike
    digit = eps / 2 * float(np.sqrt(np.mean(x**4))) if name == "square_of_the_mean" else 0.0
    assert ours <= max(ANOTHER_ORDER * theirs, digit)
