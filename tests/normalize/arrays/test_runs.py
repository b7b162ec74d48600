"""Gathers at few places that are known, by what lies together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse, transpile

PARENTS = np.array([0, 0, 1, 1, 4])
X = jax.random.normal(jax.random.key(0), (5, 3))


def of_parents(x: jax.Array) -> jax.Array:
    return jnp.sin(x)[PARENTS]


def of_columns(x: jax.Array) -> jax.Array:
    return jnp.sin(x)[:, np.array([2, 0, 1, 1])]


def of_a_table(x: jax.Array) -> jax.Array:
    return jnp.sin(x)[np.array([[3, 3], [0, 1], [2, 4]])]


def signed(x: jax.Array) -> jax.Array:
    """A constant that is no index."""
    return x * jnp.array([1, -1, -1])


def in_a_loop(x: jax.Array) -> jax.Array:
    """A tree whose joints look at their parents again and again."""

    def step(c: jax.Array, _: None) -> tuple[jax.Array, None]:
        for _ in range(8):
            c = 0.9 * c + 0.1 * jnp.cross(c[PARENTS], jnp.roll(c, 1, 1))
        return c, None

    return lax.scan(step, x, length=3)[0]


PROGRAMS = [of_parents, of_columns, of_a_table, signed, in_a_loop]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_and_gradients(program: Any) -> None:
    fused = fuse(program, backend="interpret")
    np.testing.assert_allclose(fused(X), jax.jit(program)(X), rtol=1e-5, atol=1e-6)
    got, want = (jax.grad(lambda x, f=f: (f(x) ** 2).sum())(X) for f in (fused, program))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nothing_is_left_and_no_place_is_computed(program: Any) -> None:
    compiled = transpile(program, X)
    assert not compiled.leftovers
    assert len(compiled.kernels) == 1
    assert [each.name for each in compiled.kernels[0].inputs] == ["x"]


def test_long_tables_are_read() -> None:
    places = np.random.default_rng(0).integers(0, 5, 40)
    compiled = transpile(lambda x: jnp.sin(x)[places], X)
    assert len(compiled.kernels[0].inputs) == 2
