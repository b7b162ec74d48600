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


def source(fn: Any) -> str:
    (kernel,) = j2t.transpile(fn, W, XS).kernels
    return kernel.source


def test_columns_of_results_are_read_one_number_at_a_time() -> None:
    text = source(columns)
    assert "unaligned = tl.num_programs(2) - 1" in text and text.count("w_ptr + unaligned") == 1
    assert "xs_ptr + unaligned" not in text


def test_where_neighbours_are_summed_they_are_read_at_once() -> None:
    assert "tl.num_programs" not in source(rows)


def test_threads_sum_by_themselves() -> None:
    """Where they do not, lanes exchange their parts of each sum."""
    target = target_named("sm_90")
    counts = []
    for fn in (columns, rows):
        (kernel,) = j2t.transpile(fn, W, XS).kernels
        counts.append(str(compile_kernel(kernel, target).code).count("shfl.sync"))
    assert counts[0] * 8 < counts[1]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [columns, rows])
def test_values(fn: Any, backend: str) -> None:
    found = j2t.fuse(fn, backend=backend, strict=True)(W, XS)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(fn)(W, XS)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
