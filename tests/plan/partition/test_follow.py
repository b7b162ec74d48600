"""What is only made of a kernel's results, place by place, is written by that kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.api import transpile

RNG = np.random.default_rng(3)


def x(*shape: int) -> Any:
    return jnp.asarray(RNG.normal(size=shape) * 2 + 1, jnp.float32)


def compared(fn: Callable[..., Any], *args: Any, backend: str = "interpret") -> None:
    found, expected = j2t.fuse(fn, backend=backend, strict=True)(*args), jax.jit(fn)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), 2e-5, 2e-5)


def training_step(x: Any, mean: Any, spread: Any) -> Any:
    """A batch norm that keeps running averages."""
    m, v = x.mean(0), x.var(0)
    return (x - m) * jax.lax.rsqrt(v + 1e-5), 0.9 * mean + 0.1 * m, jnp.where(v > 0, 0.9 * spread + 0.1 * v, spread)


def two_ways(x: Any) -> Any:
    total = jnp.sum(x, 0)
    return x / total, total * 0.5, jnp.tanh(total)


def of_two_kernels(x: Any, y: Any) -> Any:
    """One of the two that are read is made later than the other."""
    a = jnp.sum(x, 0)
    b = jnp.sum(y * a, 0)
    return y - b, x - a, a * b


def in_another_shape(x: Any) -> Any:
    """What is looked at from another place has a kernel of its own."""
    total = jnp.sum(x, 0)
    return x - total, total[::-1] * total


@pytest.mark.parametrize(
    ("fn", "args", "kernels"),
    [
        (training_step, (x(3000, 70), x(70), x(70)), 3),
        (two_ways, (x(3000, 70),), 3),
        (of_two_kernels, (x(3000, 70), x(3000, 70)), 6),
        (in_another_shape, (x(3000, 70),), 4),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_values_and_kernels(fn: Callable[..., Any], args: tuple[Any, ...], kernels: int) -> None:
    assert len(transpile(fn, *args).kernels) == kernels
    compared(fn, *args)


@pytest.mark.compile
def test_on_the_machine() -> None:
    compared(training_step, x(3000, 70), x(70), x(70), backend="machine")


def test_gradients() -> None:
    def loss(*args: Any) -> Any:
        return sum(jnp.sum(jnp.sin(each)) for each in training_step(*args))

    compared(jax.grad(loss, (0, 1, 2)), x(3000, 70), x(70), x(70))


def normed_product(x: Any, w: Any) -> Any:
    """A layer norm before a product: its two sums go through the same rows, one after the other."""
    centred = x - x.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) + 1) @ w


@pytest.mark.parametrize("rows", [1, 8])
def test_sums_of_the_same_rows_are_one_kernel(rows: int) -> None:
    args = (jax.ShapeDtypeStruct((rows, 2048), np.float32), jax.ShapeDtypeStruct((2048, 8192), np.float32))
    first, product, *parts = transpile(normed_product, *args, for_target="sm_90", contractions="triton").kernels
    assert first.bytes_read == rows * 2048 * 4 and len(first.outputs) == 2
    assert np.prod(product.grid) >= 128 and len(parts) == (rows > 1)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("rows", [1, 8])
def test_their_values_and_gradients(rows: int, backend: str) -> None:
    args, ct = (x(rows, 200), x(200, 48)), x(rows, 48)
    fused = j2t.fuse(normed_product, backend=backend, contractions="triton")
    np.testing.assert_allclose(fused(*args), normed_product(*args), 1e-3, 1e-3)

    def pulled(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda x, w: (f(x, w) * ct).sum(), (0, 1))

    for found in (pulled(fused), j2t.fuse(pulled(normed_product), backend=backend, contractions="triton")):
        for ours, theirs in zip(found(*args), pulled(normed_product)(*args), strict=True):
            np.testing.assert_allclose(ours, theirs, 2e-3, 2e-3)


def test_sums_that_read_more_have_a_kernel_of_their_own() -> None:
    def apart(a: Any, b: Any) -> Any:
        total = a.sum(-1)
        return total, ((b - total[:, None]) ** 2).sum(-1), jnp.tanh(a @ a.T)

    found = transpile(apart, x(8, 4096), x(8, 4096), contractions="triton").kernels
    assert all(len(kernel.inputs) < 3 or len(kernel.outputs) == 1 for kernel in found)
