"""Matrices that are read so that each thread sums by itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.compile.compile import compile_kernel

RNG = np.random.default_rng(0)
W = RNG.normal(size=(64, 64)).astype(np.float32) / 8
XS = RNG.normal(size=(16, 8, 64)).astype(np.float32)


def columns(w: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ w), h), jnp.zeros_like(xs[0]), xs)


def rows(w: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ w.T), h), jnp.zeros_like(xs[0]), xs)


def both(w: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + jnp.tanh(h @ w) @ w.T), h), jnp.zeros_like(xs[0]), xs)


def odd(w: Any, xs: Any) -> Any:
    """Lanes beyond the ends of both axes."""
    return rows(w[:37, :37], xs[:, :, :37])


def short(w: Any, xs: Any, ys: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x[1] + h @ w.T)[:, ::8] + x[0], h), jnp.zeros_like(xs[0]), (xs, ys))


def joint(both: Any, xs: Any) -> Any:
    w, u = jnp.split(both, 2, axis=1)
    return lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u), h), jnp.zeros_like(xs[0, :, : w.shape[1]]), xs)


def source(fn: Any) -> str:
    (kernel,) = j2t.transpile(fn, W, XS).kernels
    return kernel.source


def test_columns_of_results_are_read_one_number_at_a_time() -> None:
    text = source(columns)
    assert "unaligned = tl.num_programs(2) - 1" in text and text.count("w_ptr + unaligned") == 1
    assert "xs_ptr + unaligned" not in text


def test_rows_of_results_are_read_as_if_nothing_lay_side_by_side() -> None:
    text = source(rows)
    assert "tl.max_contiguous(w_ptr + unaligned + col[:, None] * 64 + k[None, :], (64, 1))" in text


def test_short_rows_are_read_at_once() -> None:
    """A few lanes exchange their parts of a sum as quickly as a thread adds them."""
    made = j2t.transpile(short, W[:, :8], XS[..., :8], XS).kernels
    assert [kernel.source.count("max_contiguous") for kernel in made] == [0]


def test_threads_sum_by_themselves() -> None:
    """Where they do not, lanes exchange their parts of each sum."""
    target = target_named("sm_90")
    for fn in (columns, rows):
        (kernel,) = j2t.transpile(fn, W, XS).kernels
        assert str(compile_kernel(kernel, target).code).count("shfl.sync") == 0


@pytest.mark.parametrize(("size", "sums"), [(8, 1), (32, 2)])
def test_sums_that_threads_make_by_themselves_are_not_one(size: int, sums: int) -> None:
    """One sum where two would do is for lanes that meet only once."""
    matrix, steps = np.ones((size, 2 * size), np.float32), np.ones((8, 8, size), np.float32)
    (kernel,) = j2t.transpile(joint, matrix, steps).kernels
    assert kernel.source.count("tl.reduce(") == sums


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [columns, rows, both, odd])
def test_values(fn: Any, backend: str) -> None:
    found = j2t.fuse(fn, backend=backend, strict=True)(W, XS)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(fn)(W, XS)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_values_of_two_sums(backend: str) -> None:
    matrix, steps = W[:32], XS[..., :32]
    found = j2t.fuse(joint, backend=backend, strict=True)(matrix, steps)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(joint)(matrix, steps)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
