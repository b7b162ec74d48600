"""`while` loops whose condition no step reads: Triton forgets it, and compiles them all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RANDOM = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
BOTH = pytest.mark.parametrize("backend", ["interpret", "machine"])


def so_many_times(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: jnp.maximum(x * 0.5, jnp.tanh(x)), x)


def until_small(x: Any, n: Any) -> Any:
    def step(carry: Any) -> Any:
        i, x, y = carry
        return i + 1, x * 0.5 + y.sum(), jnp.cos(x)

    return lax.while_loop(lambda carry: (carry[0] < n) & (jnp.abs(carry[1]).max() > 0.01), step, (0, x, x))[1:]


def within_each_other(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: so_many_times(x + x.sum(), n), x)


def tangents(x: Any, n: Any) -> Any:
    return jax.jvp(lambda x: until_small(x, n), (x,), (jnp.cos(x),))


def each_for_itself(x: Any, n: Any) -> Any:
    return jax.vmap(lambda x, k: so_many_times(x, n - k))(x, jnp.arange(3))


PROGRAMS = (so_many_times, until_small, within_each_other, tangents, each_for_itself)


@BOTH
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_loops_whose_condition_no_step_reads(program: Callable[..., Any], backend: str) -> None:
    n = np.int32(4)
    found = j2t.fuse(program, backend=backend, strict=True)(RANDOM, n)
    expected = jax.jit(program)(RANDOM, n)
    last_digits = 4e-6  # of numbers above 8, of which there are cosines
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=last_digits), found, expected)


@BOTH
def test_no_step_at_all(backend: str) -> None:
    found = j2t.fuse(so_many_times, backend=backend, strict=True)(RANDOM, np.int32(0))
    np.testing.assert_array_equal(found, RANDOM)


def rows_from(x: Any, goes_on: Callable[[Any], Any]) -> Any:
    """Sums of rows, one of which is read in each step."""
    return lax.while_loop(lambda c: goes_on(c[0]), lambda c: (c[0] + 1, c[1] + x[c[0]]), (0, x[0]))[1]


def never(x: Any) -> Any:
    return rows_from(x, lambda i: i < 0)


def never_by_its_bounds(x: Any) -> Any:
    last = jnp.clip(x[0, 0].astype(jnp.int32), 0, 4)
    return rows_from(x, lambda i: i > last)


def never_up_and_down(x: Any) -> Any:
    def step(carry: Any) -> Any:
        i, s = carry
        sums = lax.scan(lambda s, row: (jnp.sin(s + row), s * row), s, x)[1]
        return i + 1, lax.scan(lambda s, row: (jnp.sin(s + row), s * row), s, sums, reverse=True)[0]

    return lax.while_loop(lambda carry: carry[0] < 0, step, (0, x[0]))


def tangents_of_never(x: Any) -> Any:
    return jax.jvp(lambda x: never(x).sum() + x, (x,), (jnp.cos(x),))


@BOTH
@pytest.mark.parametrize("program", [never, never_by_its_bounds, never_up_and_down, tangents_of_never])
def test_a_loop_that_never_runs(program: Callable[..., Any], backend: str) -> None:
    """Triton 3.6 breaks down over memory that is read in one."""
    found = j2t.fuse(program, backend=backend, strict=True)(RANDOM)
    jax.tree.map(np.testing.assert_array_almost_equal_nulp, found, jax.jit(program)(RANDOM))


def test_a_loop_that_never_runs_is_not_written() -> None:
    (kernel,) = j2t.transpile(never_by_its_bounds, RANDOM).kernels
    assert "while" not in kernel.source.partition("def never_by_its_bounds")[2]
