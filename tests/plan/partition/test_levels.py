"""What a kernel waits for: all that its region is given, so that a loop is run once however much its results need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.loop_programs import PROGRAMS

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((8, 64)).astype(np.float32)
MANY = (RNG.standard_normal(2**18) / 512).astype(np.float32)  # enough for its sum to be made by several programs
SOME = RNG.standard_normal(4096).astype(np.float32)


def steps(xs: Any, k: Any) -> Any:
    """Two results of one loop, of which only the second needs k."""

    def step(carry: Any, x: Any) -> Any:
        c, d = carry
        c = jnp.sin(c + x)
        return (c, jnp.sin(c + k * d)), carry

    c, d = lax.scan(step, (jnp.zeros_like(xs[0]), jnp.ones_like(xs[0])), xs)[1]
    return c.T, d.T


def beside_xla(xs: Any, w: Any) -> Any:
    return steps(xs, jnp.sort(w)[0] / 8)


def beside_a_loop(xs: Any, w: Any) -> Any:
    k = lax.fori_loop(0, 3, lambda i, k: jnp.cos(k) + i, w)
    return steps(xs, jnp.sum(k) / w.size)


def unread_rows(xs: Any, w: Any) -> Any:
    total = w.sum()
    both = jnp.concatenate([xs, jnp.full_like(xs, total)])
    return jnp.flip(both.reshape(2, *xs.shape), 0)[1] * 2, total


def unread_padded(xs: Any, w: Any) -> Any:
    total = w.sum()
    return lax.pad(jnp.full_like(xs, total), 0.0, [(16, 0, 0), (0, 0, 0)])[:8] + xs, total


def updated_elsewhere(xs: Any, w: Any) -> Any:
    total = w.sum()
    start = jnp.full_like(xs[:4], total) + xs[:4]
    return lax.dynamic_update_slice(jnp.concatenate([xs, xs]), start, (0, 0))[8:].T.reshape(64, 2, 4), total


@pytest.mark.parametrize(("fn", "operand", "kernels"), [(beside_xla, SOME, 1), (beside_a_loop, SOME, 2)])
def test_a_loop_is_run_once_also_where_some_results_need_more(
    fn: Callable[..., Any], operand: Any, kernels: int
) -> None:
    assert len(agrees(fn, ROWS, operand).kernels) == kernels


@pytest.mark.parametrize("fn", [unread_rows, unread_padded, updated_elsewhere])
def test_what_a_kernel_does_not_read_of_its_operands_comes_before_it(fn: Callable[..., Any]) -> None:
    assert not agrees(fn, ROWS, MANY).leftovers


@pytest.mark.parametrize("fn", [beside_a_loop, unread_rows])
def test_gradients_agree(fn: Callable[..., Any]) -> None:
    operand = SOME if fn is beside_a_loop else MANY

    def loss(xs: Any, w: Any) -> Any:
        return sum((out**2).sum() for out in fn(xs, w))

    value, gradients = j2t.transpile(loss, ROWS, operand, grad=(0, 1))(ROWS, operand)
    expected, wanted = jax.jit(jax.value_and_grad(loss, (0, 1)))(ROWS, operand)
    np.testing.assert_allclose(value, expected, 1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), gradients, wanted)


def test_the_gradient_of_a_selective_scan_shares_the_device() -> None:
    """Forward and backward, stretches are side by side: maps of both, what each begins with, and the steps."""
    (scan,) = [program for program in PROGRAMS if program.name == "selective_scan"]
    assert scan.bench_args is not None
    args = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), scan.bench_args(RNG))
    kernels = j2t.transpile(scan.gradient(), *args).kernels
    loops = [kernel for kernel in kernels if "for t" in kernel.source]
    assert 5 <= len(loops) <= 6
    assert all(math.prod(kernel.grid) >= 132 for kernel in loops)


def agrees(fn: Callable[..., Any], *args: Any) -> j2t.Program:
    program = j2t.transpile(fn, *args)
    for got, want in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return program
