"""Loops with matrices that do not fit into a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.scans import scan_of
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.plan.schedule.tiled_products import large_products
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.emit.test_compiling import SM_90, resources
from tests.loop_programs import PROGRAMS
from tests.policies import planned_with

RNG = np.random.default_rng(5)


@pytest.fixture
def little_room() -> Iterator[None]:
    with planned_with(loops={"kept_by_program": 64}, blocks={"resident": 256}):
        yield


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32) * 0.3


def elman(w: Any, u: Any, xs: Any, h: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u),) * 2, h, xs)


def inner_elman(w: Any, u: Any, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, h: jnp.tanh(x @ w + h @ u), h), None

    return lax.scan(step, h, xs)


def sum_of_a_matrix(w: Any, u: Any, xs: Any, h: Any) -> Any:
    """A sum of what no step changes is taken before the loop, though the matrix is read again in it."""
    return lax.scan(lambda h, x: (jnp.tanh(h @ u + x @ w) + (u * u).sum(), None), h, xs)


def two_layers(w: Any, u: Any, xs: Any, h: Any) -> Any:
    """A product of a product."""
    return lax.scan(lambda h, x: (jnp.tanh((h @ u) @ u.T + x @ w), None), h, xs)


def two_states(w: Any, u: Any, xs: Any, h: Any) -> Any:
    """A product that is read twice, beside one that is only put out."""

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        product = h @ u + x @ w
        return (jnp.tanh(product), c + jnp.sin(product)), h @ u.T

    return lax.scan(step, (h, h * 0.5), xs)


def gradient(fn: Any) -> Any:
    def all_of(*args: Any) -> Any:
        results, back = jax.vjp(fn, *args)
        return results, back(jax.tree.map(jnp.cos, results))

    return all_of


FUNCTIONS = (elman, inner_elman, sum_of_a_matrix, two_layers, two_states)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("fn", [*FUNCTIONS, *map(gradient, FUNCTIONS)])
@pytest.mark.parametrize("hidden", [16, 13])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
def test_values(fn: Any, hidden: int, batch: tuple[int, ...]) -> None:
    args = normal(7, hidden), normal(hidden, hidden), normal(4, *batch, 7), normal(*batch, hidden)
    program = j2t.transpile(fn, *args, contractions="triton")  # however little the loops do
    assert not {left.primitive for left in program.leftovers} - {"dot_general"}, program.explain()
    assert any(kernel.kept for kernel in program.kernels), program.explain()
    for mine, wanted in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=2e-4)


def test_which_products() -> None:
    def step(carry: Any, x: Any) -> Any:
        h, small = carry
        h = jnp.tanh(h @ weights + x)
        return (h, small @ weights[:4, :4]), h @ weights

    weights = normal(128, 128)
    closed = jax.make_jaxpr(lambda h, s, xs: lax.scan(step, (h, s), xs))(
        normal(9, 128), normal(9, 4), normal(5, 9, 128)
    )
    found = large_products(closed.jaxpr, DEFAULT_POLICY.blocks.room)
    (scan,) = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    body = scan_of(scan).body
    (total,) = [eqn.outvars[0] for eqn in body.eqns if eqn.primitive.name == "add"]
    given = scan_of(scan).carries[0][1]
    assert found == {given: (1,), total: (1,)}  # the other products are too small, or put out only


@pytest.mark.parametrize("with_gradient", [False, True], ids=["forward", "gradient"])
def test_nothing_is_spilled(with_gradient: bool) -> None:
    (program,) = [program for program in PROGRAMS if program.name == "lstm"]
    assert program.bench_args is not None
    args = program.bench_args(np.random.default_rng(0))
    program = replace(program, fn=program.bench_fn)
    kernels = j2t.transpile(program.gradient() if with_gradient else program.fn, *args).kernels
    assert any(kernel.kept for kernel in kernels)
    assert {kernel.name: resources(compile_kernel(kernel, SM_90)).spills for kernel in kernels} == dict.fromkeys(
        [kernel.name for kernel in kernels], 0
    )
