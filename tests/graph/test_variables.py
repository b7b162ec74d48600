"""Small arrays of a long loop: one variable for each element, where tiles would be computed again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Kernel, Role
from tests.policies import planned_with
from tests.policy.programs import bodies_that_turn

LONG = {"steps": 15}  # computations that are many


def roles(kernel: Kernel) -> set[Role]:
    return {axis.role for axis in kernel.axes}


def some(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def checked(function: Callable[..., Any], x: Any, backend: str = "interpret") -> tuple[Kernel, ...]:
    with planned_with(cuts=LONG):
        program = j2t.transpile(function, x)
        got = j2t.fuse(function, backend=backend, strict=True)(x)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(function)(x)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
    return program.kernels


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_each_element_is_a_variable(backend: str) -> None:
    (kernel,) = checked(bodies_that_turn, some(2, 3, 3), backend=backend)
    assert roles(kernel) == {Role.LOOP, Role.UNROLL}
    assert "tl.arange" not in kernel.source and "tl.sum" not in kernel.source


def test_those_of_a_batch_are_lanes() -> None:
    (kernel,) = checked(jax.vmap(bodies_that_turn), some(100, 2, 3, 3))
    assert {axis.role for axis in kernel.axes if axis.size != 100} == {Role.LOOP, Role.UNROLL}


def test_its_gradient() -> None:
    checked(jax.grad(lambda x: jnp.sum(bodies_that_turn(x)[1] ** 2)), some(2, 3, 3))


def test_what_is_long_as_variables_too_stays() -> None:
    with planned_with(cuts={**LONG, "variables_of_loops": 60}):
        (left,) = j2t.transpile(bodies_that_turn, some(2, 3, 3)).leftovers
    assert "computations long, too many for one kernel" in left.why
