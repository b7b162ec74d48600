"""Moves on whole programs: each keeps what the program computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.autodiff.tracing import flatten, lower, prune, reached
from jaxpr2triton.ir.tracing import argument_names, run
from tests.transforms.functions import V, X, Y, wave


def primitives(jaxpr: Any) -> list[str]:
    return [eqn.primitive.name for eqn in jaxpr.jaxpr.eqns]


def test_flatten_opens_calls_that_mean_nothing_more() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) + 1)(x) * 2)(X)
    flat = flatten(jaxpr)
    assert primitives(flat) == ["sin", "add", "mul"] and argument_names(flat) == ["x"]
    np.testing.assert_array_equal(run(flat, X)[0], run(jaxpr, X)[0])


def test_flatten_keeps_rules_and_checkpoints() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.jit(jax.checkpoint(jnp.sin))(jax.nn.relu(x)))(X)
    assert primitives(flatten(jaxpr)) == ["custom_jvp_call", primitives(flatten(jaxpr))[1]]
    assert "sin" not in primitives(flatten(jaxpr))


def test_flatten_leaves_a_flat_program_alone() -> None:
    jaxpr = jax.make_jaxpr(wave)(X)
    assert flatten(jaxpr) is jaxpr


def test_lower_leaves_a_low_program_alone() -> None:
    jaxpr = jax.make_jaxpr(wave)(X)
    assert lower(jaxpr).program is jaxpr


def test_lower_opens_functions_that_jax_keeps_for_their_derivatives() -> None:
    def root(a: Any) -> Any:
        solve = lambda g, x: jax.lax.fori_loop(0, 9, lambda _, x: x - g(x) / 3, x)  # noqa: E731
        return jax.lax.custom_root(lambda x: x * 3 - a, a, solve, lambda g, y: y / g(1.0))

    jaxpr = jax.make_jaxpr(root)(6.0)
    lowered = lower(jaxpr).program
    assert not getattr(lowered.jaxpr, "is_high", False)
    np.testing.assert_allclose(run(lowered, 6.0)[0], 2.0, rtol=1e-6)


def test_prune_drops_outputs_and_the_inputs_they_needed() -> None:
    jaxpr = jax.make_jaxpr(lambda x, y, z: (jnp.sin(x), y * 2, jnp.cos(z)))(X, Y, V)
    program, used = prune(jaxpr, [False, True, False])
    assert used == [False, True, False] and primitives(program) == ["mul"]
    np.testing.assert_array_equal(run(program, Y)[0], Y * 2)
    _, kept = prune(jaxpr, [False, True, False], keep=[True, False, False])
    assert kept == [True, True, False]


def test_reached_follows_every_path() -> None:
    jaxpr = jax.make_jaxpr(lambda x, y: (x, jnp.sin(x) + y, y * 2, jnp.float32(3)))(X, Y)
    assert reached(jaxpr, [True, False]) == [True, True, False, False]
    assert reached(jaxpr, [False, True]) == [False, True, True, False]
