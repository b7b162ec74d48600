"""Loads of which a choice wants only some elements."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

RNG = np.random.default_rng(0)


def up_to_a_length(scores: Any, lengths: Any) -> Any:
    wanted = jnp.arange(scores.shape[-1]) < lengths[:, None]
    return jax.nn.softmax(jnp.where(wanted, scores, -jnp.inf), -1)


def causal(scores: Any, lengths: Any) -> Any:
    wanted = jnp.arange(scores.shape[0])[:, None] >= jnp.arange(scores.shape[1])
    return jnp.where(wanted, scores.astype(jnp.float32), -1e9).max(-1) + lengths


def converted_before(scores: Any, lengths: Any) -> Any:
    """What the choice is about is converted before it is known."""
    wide = scores.astype(jnp.bfloat16).astype(jnp.float32)
    hidden = (jnp.arange(scores.shape[-1]) * 2 - 3 < lengths[:, None] * 2) & (lengths[:, None] > 3)
    return jnp.where(hidden, 1.0, wide).max(-1)


def beyond_a_length(scores: Any, lengths: Any) -> Any:
    """The choice wants it where the condition does not hold."""
    return jnp.where(jnp.arange(scores.shape[-1]) < lengths[:, None], 0.0, scores).sum(-1)


def both_wanted(scores: Any, lengths: Any) -> Any:
    return jnp.where(jnp.arange(scores.shape[-1]) < lengths[:, None], scores, scores * 2).sum(-1)


def of_its_own(scores: Any, lengths: Any) -> Any:
    """Whether it is wanted, each element says itself."""
    return jnp.where(scores > 0, scores, 0.0).sum(-1) + lengths


def of_its_neighbour(scores: Any, lengths: Any) -> Any:
    """To find out would take as long as to read it."""
    return jnp.where(scores[:, ::-1] > 0, scores, 0.0).sum(-1) + lengths


def loads(fn: Any, dtype: Any = jnp.float32) -> list[str]:
    scores, lengths = jax.ShapeDtypeStruct((64, 256), dtype), jax.ShapeDtypeStruct((64,), jnp.int32)
    (kernel,) = j2t.transpile(fn, scores, lengths).kernels
    return [line for line in kernel.source.splitlines() if "tl.load(scores_ptr" in line]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("fn", [up_to_a_length, causal, beyond_a_length])
def test_others_are_not_read(fn: Any, dtype: Any) -> None:
    (load,) = loads(fn, dtype)
    assert "mask=" in load and ("~" in load) == (fn is beyond_a_length)


@pytest.mark.parametrize("fn", [both_wanted, of_its_own, of_its_neighbour])
def test_all_are_read_where_that_is_not_known_before(fn: Any) -> None:
    assert all("mask=" not in load for load in loads(fn))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [up_to_a_length, causal, beyond_a_length, converted_before, both_wanted, of_its_own])
def test_values_and_gradients(fn: Any, backend: str) -> None:
    """What is not wanted may be anything; 77 is no power of two, so there are lanes beyond the end as well."""
    scores = RNG.standard_normal((12, 77)).astype(np.float32)
    lengths = jnp.asarray(RNG.integers(1, 78, 12), jnp.int32)
    if fn in (up_to_a_length, causal):
        unwanted = np.arange(77) >= np.asarray(lengths)[:, None]
        scores[unwanted if fn is up_to_a_length else np.arange(12)[:, None] < np.arange(77)] = np.nan
    fused = j2t.fuse(fn, backend=backend)
    np.testing.assert_allclose(fused(scores, lengths), jax.jit(fn)(scores, lengths), rtol=1e-5, atol=1e-5)
    ct = jnp.asarray(RNG.standard_normal(jax.eval_shape(fn, scores, lengths).shape), jnp.float32)

    def pulled(f: Any) -> Any:
        return jax.grad(lambda scores: (f(scores, lengths) * ct).sum())

    wanted = jax.jit(pulled(fn))(scores)
    for found in (pulled(fused), j2t.fuse(pulled(fn), backend=backend)):
        np.testing.assert_allclose(found(scores), wanted, rtol=1e-4, atol=1e-4)
