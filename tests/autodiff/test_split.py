"""Derived programs: each does what JAX's own transformation does, and nothing that nobody asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.autodiff import split
from jaxpr2triton.front.derived_programs import recomputable
from jaxpr2triton.ir.tracing import argument_names, result_names, run
from tests.transforms.functions import V, X, Y, layer_norm, mix, softmax


def close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


PROGRAMS = {
    "layer_norm": (layer_norm, (X, V, V)),
    "mix": (mix, (X, Y)),
    "softmax": (softmax, (X,)),
    "matmul": (lambda a, b: jnp.tanh(a @ b.T).sum(0), (X, Y)),
    "cumsum": (lambda x: jnp.cumsum(jnp.exp(x), 1), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_linear_and_backward(name: str) -> None:
    function, args = PROGRAMS[name]
    jaxpr = jax.make_jaxpr(function)(*args)
    halves = split.linearize(jaxpr, (True,) * len(args), recomputable)
    results = run(halves.forward, *args)
    outputs, new = results[:1], results[1:]
    expected, pullback = jax.vjp(function, *args)
    close(outputs, [expected])
    held = halves.residuals(args, outputs, new)
    close(run(halves.linear, *held, *args), [jax.jvp(function, args, args)[1]])
    linear = (False,) * len(held) + (True,) * len(args)
    backward = split.transpose(halves.linear, linear, (True,))
    assert backward.reaching == (True,) * len(args)
    close(run(backward.program, *held, jnp.cos(expected)), pullback(jnp.cos(expected)))


def test_names_say_where_values_come_from() -> None:
    halves = split.linearize(jax.make_jaxpr(layer_norm)(X, V, V), (True, False, True), recomputable)
    assert argument_names(halves.forward) == ["x", "scale", "bias"]
    assert argument_names(halves.linear) == ["x", "scale", "mean", "rsqrt", "d_x", "d_bias"]
    backward = split.transpose(halves.linear, (False,) * 4 + (True,) * 2, (True,))
    assert argument_names(backward.program) == ["x", "scale", "mean", "rsqrt", "ct"]
    assert result_names(halves.forward) == ["", "mean", "rsqrt"]
    assert result_names(backward.program) == ["d_x", "d_bias"]


def test_outputs_that_do_not_move() -> None:
    jaxpr = jax.make_jaxpr(lambda x, n: (x * 2, n + 1, jnp.ones(3), jnp.sin(x)))(X, jnp.arange(3))
    halves = split.linearize(jaxpr, (True, False), recomputable)
    assert halves.nonzero_outputs == (True, False, False, True)
    assert len(halves.linear.out_avals) == 2


def test_cotangents_that_do_not_arrive() -> None:
    jaxpr = jax.make_jaxpr(lambda a, b, x, y: (a * x, b * y))(X, Y, X, Y)
    backward = split.transpose(jaxpr, (False, False, True, True), (False, True))
    assert backward.reaching == (False, True)
    close(run(backward.program, X, Y, V + X), [Y * (V + X)])


def test_the_slope_of_rsqrt_needs_the_result_alone() -> None:
    halves = split.linearize(jax.make_jaxpr(jax.lax.rsqrt)(X), (True,), recomputable)
    assert [source.kind for source in halves.sources] == ["out"]
    x = jnp.array([1e-12, 1e-3, 1.0, 7.0, 1e12])
    halves = split.linearize(jax.make_jaxpr(jax.lax.rsqrt)(x), (True,), recomputable)
    (slope,) = run(halves.linear, jax.lax.rsqrt(x), jnp.ones_like(x))
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(jax.lax.rsqrt))(x), rtol=1e-6)


def test_batch_leaves_alone_what_is_not_batched() -> None:
    jaxpr = jax.make_jaxpr(lambda x, y: (x * 2, jnp.sin(y), x + y))(V, V)
    batched = split.batch(jaxpr, [X, V], [0, None], 3, None, None)
    assert batched.out_dims == (0, None, 0)
    close(run(batched.program, X, V), [X * 2, jnp.sin(V), X + V])


def test_batch_dimensions_come_first() -> None:
    jaxpr = jax.make_jaxpr(mix)(V, V)
    batched = split.batch(jaxpr, [X.T, Y], [1, 0], 3, None, None)
    assert batched.out_dims == (0,)
    close(run(batched.program, X.T, Y), [mix(X, Y)])
