"""Sums along what a contraction has summed, which read its results instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from jaxpr2triton.normalize.arrays.exchanged import exchange_sums
from jaxpr2triton.normalize.passes import normalize

RNG = np.random.default_rng(3)


def weights(q: Any, k: Any) -> Any:
    return jnp.exp(-jnp.abs(jnp.einsum("id,jd->ij", q, k)))


def plain(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    return e @ v, jnp.sum((g @ v.T) * e, 1)


def with_factors(q: Any, k: Any, v: Any, g: Any) -> Any:
    """What all terms have alike is beside e on both sides, and a sign; what e is divided by is multiplied with."""
    e = weights(q, k)
    total = jnp.sum(e, 1, keepdims=True)
    return (e / total) @ v, jnp.sum(-(g @ v.T) / total * e * 3, 1)


def with_a_mask(q: Any, k: Any, v: Any, g: Any) -> Any:
    e, kept = weights(q, k), jnp.sin(q[:, :1] * k[:, 0]) > 0
    return jnp.where(kept, e / 0.9, 0) @ v, jnp.sum(jnp.where(kept, g @ v.T, 0) * e, 1)


def turned(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    return (v.T @ e.T).T, jnp.sum((v @ g.T) * e.T, 0)


def columns(q: Any, k: Any, v: Any, g: Any) -> Any:
    """Along the queries, of what is summed along them."""
    e = weights(q, k)
    return e.T @ g, jnp.sum((v @ g.T) * e.T, 1)


def of_other_weights(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    return (e * e) @ v, jnp.sum((g @ v.T) * e, 1)


def of_another_mask(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    return jnp.where(q[:, :1] > k[:, 0], e, 0) @ v, jnp.sum(jnp.where(q[:, :1] < k[:, 0], g @ v.T, 0) * e, 1)


def multiplied_by_what_may_be_zero(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    return (e * jnp.maximum(q[:, :1], 0)) @ v, jnp.sum((g @ v.T) * e, 1)


def known_too_late(q: Any, k: Any, v: Any, g: Any) -> Any:
    e = weights(q, k)
    total = jnp.sum((g @ v.T) * e, 1)
    return e @ v, total


def pairs_that_are_summed(closed: Any, pairs: int) -> int:
    eqns = closed.jaxpr.eqns
    return sum(eqn.primitive.name == "reduce_sum" and eqn.invars[0].aval.size >= pairs for eqn in eqns)


def exchanged(program: Callable[..., Any], keys: int = 40) -> tuple[int, int]:
    """How many sums of pairs there are before and after; the values are the same."""
    shapes = (30, 4), (keys, 4), (keys, 5), (30, 5)
    args = [jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes]
    before = normalize(jax.make_jaxpr(program)(*args))
    after = exchange_sums(before)
    with jax.default_matmul_precision("highest"):
        for one, other in zip(jaxpr_as_fun(after)(*args), program(*args)):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    return pairs_that_are_summed(before, 30 * keys), pairs_that_are_summed(after, 30 * keys)


@pytest.mark.parametrize("program", [plain, with_factors, with_a_mask, turned, columns])
def test_sums_are_exchanged(program: Callable[..., Any]) -> None:
    before, after = exchanged(program)
    assert after == before - 1


@pytest.mark.parametrize(
    "program", [of_other_weights, of_another_mask, multiplied_by_what_may_be_zero, known_too_late]
)
def test_sums_of_other_terms_are_not(program: Callable[..., Any]) -> None:
    before, after = exchanged(program)
    assert after == before > 0


def test_results_that_are_more_than_pairs_are_not_read() -> None:
    before, after = exchanged(plain, keys=8)
    assert after == before == 1
