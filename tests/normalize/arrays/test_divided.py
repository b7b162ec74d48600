"""Exponentials that are divided by their sums: once, however often they are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from jaxpr2triton.normalize.arrays.divided import divide_once
from jaxpr2triton.normalize.arrays.exchanged import exchange_sums
from jaxpr2triton.normalize.passes import normalize

RNG = np.random.default_rng(5)
PAIRS = 64 * 160


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.where(jnp.arange(64)[:, None] >= jnp.arange(160), q @ k.T, -jnp.inf)
    return jax.nn.softmax(scores) @ v


def capped(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(5 * jnp.tanh(q @ k.T / 5)) @ v


def with_where(q: Any, k: Any, v: Any) -> Any:
    """Some rows have no key at all: what they would be divided by is 0."""
    return jax.nn.softmax(q @ k.T, where=jnp.arange(64)[:, None] - 8 >= jnp.arange(160)) @ v


def dropped(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T)
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape), weights / 0.9, 0) @ v


def gradients(program: Callable[..., Any]) -> Callable[..., Any]:
    def pulled(q: Any, k: Any, v: Any, g: Any) -> Any:
        out, pull = jax.vjp(program, q, k, v)
        return out, pull(g)

    return pulled


def divisions(closed: Any) -> int:
    """By numbers that each row has one of."""
    eqns = closed.jaxpr.eqns
    large = (eqn for eqn in eqns if eqn.primitive.name == "div" and eqn.outvars[0].aval.size == PAIRS)
    return sum(eqn.invars[1].aval.shape != () for eqn in large)


def arrays(dtype: Any) -> list[Any]:
    return [jnp.asarray(RNG.normal(size=shape), dtype) for shape in ((64, 8), (160, 8), (160, 8), (64, 8))]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("program", [attention, causal, capped, with_where, dropped])
def test_gradients_divide_nothing_of_all_pairs(program: Callable[..., Any], dtype: Any) -> None:
    args = arrays(dtype)
    before = exchange_sums(normalize(jax.make_jaxpr(gradients(program))(*args)))
    after = divide_once(before)
    assert divisions(before) == 2 and divisions(after) == 1  # of the result, whose sum may go along
    exact = jax.tree.leaves(jax.jit(gradients(program))(*(each.astype(jnp.float32) for each in args)))
    for one, other, expected in zip(jaxpr_as_fun(after)(*args), jaxpr_as_fun(before)(*args), exact, strict=True):
        found, as_before = (float(jnp.abs(each.astype(jnp.float32) - expected).max()) for each in (one, other))
        assert found <= 4 * as_before + 2e-6 * float(jnp.abs(expected).max())


def test_what_is_subtracted_is_a_number_of_the_row() -> None:
    """Nothing is left of the products and quotients with the sum: results times cotangents are summed."""
    args = arrays(jnp.float32)
    after = divide_once(exchange_sums(normalize(jax.make_jaxpr(gradients(attention))(*args))))
    of_rows = Counter(eqn.primitive.name for eqn in after.jaxpr.eqns if eqn.outvars[0].aval.size == 64)
    assert of_rows["mul"] == 0 and of_rows["div"] == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda q, k: (q @ k.T) / jnp.sum(q, 1, keepdims=True),  # of no exponential
        lambda q, k: jax.nn.softmax(q @ k.T),  # that nothing multiplies
        lambda q, k: jax.nn.softmax(q @ k.T) @ k,  # whose sum may go along
    ],
)
def test_left_alone(program: Callable[..., Any]) -> None:
    q, k, *_ = arrays(jnp.float32)
    before = normalize(jax.make_jaxpr(program)(q, k))
    assert divide_once(before) is before
