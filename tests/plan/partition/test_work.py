"""How much is done to cut programs into kernels, by counts: what grows with them is how often they are walked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph import space
from jaxpr2triton.graph.nodes import Graph


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, np.float32)


def walked(fn: Callable[..., Any], *args: Any) -> tuple[int, int, int]:
    """The walks that a program takes to be cut, the values that they find, and its launches."""
    found: list[int] = []

    def counted(*operands: Any, **options: Any) -> Graph:
        found.append(0)
        graph = space_walk(*operands, **options)
        found[-1] = len(graph.nodes)
        return graph

    space_walk = space.walk
    with mock.patch.object(space, "walk", counted):
        launches = len(j2t.transpile(fn, *args).kernels)
    return len(found), sum(found), launches


def layers(count: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def fn(x: Any, ws: Any) -> Any:
        for n in range(count):
            x = jnp.tanh(x @ ws[n])
        return jnp.sum(x)

    return jax.grad(fn, (0, 1)), (shape(32, 64), shape(count, 64, 64))


def affine_scan(steps: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of a scan in the order of a tree, as JAX differentiates it."""

    def combine(one: Any, other: Any) -> Any:
        return one[0] * other[0], other[0] * one[1] + other[1]

    def fn(a: Any, b: Any) -> Any:
        return jnp.sum(lax.associative_scan(combine, (a, b))[1] ** 2)

    return jax.grad(fn, (0, 1)), (shape(steps, 64), shape(steps, 64))


def test_all_that_is_wanted_too_often_is_found_by_one_walk() -> None:
    fn, args = affine_scan(256)
    walks, _, launches = walked(fn, *args)
    assert walks <= 4 * launches


def test_a_kernel_that_reads_many_products_takes_few_walks() -> None:
    """The gradient of stacked weights is put together of as many products as there are layers.

    Of each that a kernel needs first two walks tell whether it had better read what another one makes of it.
    """
    found = [walked(fn, *args) for fn, args in (layers(20), layers(80))]
    assert all(walks <= 6 * launches for walks, _, launches in found)
    assert found[1][1] < 5 * found[0][1]


def test_a_matrix_exponential_is_a_few_kernels() -> None:
    """The rows of a factored matrix are read as rows, as columns and as results: made again, not one kernel for each.

    The order of its rows begins as an iota, of which each program has the sums: it has one matrix, not all.
    """
    program = j2t.transpile(jax.vmap(jax.scipy.linalg.expm), shape(64, 8, 8))
    assert len(program.kernels) < 10
    assert min(kernel.grid[0] * kernel.grid[1] * kernel.grid[2] for kernel in program.kernels) >= 64


@pytest.mark.parametrize("size", [5, 6])
def test_a_matrix_exponential_is_right(size: int) -> None:
    matrices = jnp.asarray(np.random.default_rng(size).normal(size=(3, size, size)), jnp.float32)
    fn = jax.vmap(jax.scipy.linalg.expm)
    np.testing.assert_allclose(j2t.fuse(fn, backend="interpret")(matrices), jax.jit(fn)(matrices), rtol=2e-5, atol=1e-5)


def test_the_gradient_of_a_tree_is_right() -> None:
    fn, shapes = affine_scan(32)
    args = [jnp.asarray(np.random.default_rng(n).normal(size=s.shape), jnp.float32) for n, s in enumerate(shapes)]
    found, expected = j2t.fuse(fn, backend="interpret")(*args), jax.jit(fn)(*args)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
