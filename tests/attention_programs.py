"""Queries that look at keys, as libraries and users write it: f[batch, heads, time, features] each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples import attention
from examples.attention import places, scores, weighed

HIDING = 2.0**-1 * float(np.finfo(np.float32).min)  # as libraries write it, a number as low as can be


def hidden(shown: Callable[..., Any], fill: float) -> Callable[..., Any]:
    """Where `shown` of the places of queries and keys does not hold the scores are this number."""

    def program(q: Any, k: Any, v: Any) -> Any:
        return weighed(jnp.where(shown(*places(q, k)), scores(q, k), fill), v)

    return program


def masked_softmax(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores(q, k), -1, where=i >= j), v)


def segments(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return weighed(jnp.where((i // 50 == j // 50) & (i >= j), scores(q, k), -jnp.inf), v)


def lengths(q: Any, k: Any, v: Any) -> Any:
    """One of them is nothing: then all keys are."""
    length = (jnp.arange(q.shape[1]) * 77)[None, :, None, None]
    _, j = places(q, k)
    return weighed(jnp.where(j < length, scores(q, k), HIDING), v)


def linear(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.where(i >= j, jnp.einsum("bhqd,bhkd->bhqk", q, k), 0) / 16, v)


def in_vmap(q: Any, k: Any, v: Any) -> Any:
    return jax.vmap(jax.vmap(lambda q, k, v: jax.nn.softmax(q @ k.T / 4) @ v))(q, k, v)


def of_library(**options: Any) -> Callable[..., Any]:
    """`jax.nn.dot_product_attention`, whose arrays have heads behind times."""

    def program(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, **options)

    return program


def with_lengths_of_library(q: Any, k: Any, v: Any) -> Any:
    return of_library(key_value_seq_lengths=jnp.full(len(q), 100))(q, k, v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    """All heads of queries look at the same keys."""
    return of_library()(q, k[:, :1], v[:, :1])


def rows_without_keys(q: Any, k: Any, v: Any) -> Any:
    return hidden(lambda i, j: i - 70 >= j, HIDING)(q, k, v)


PROGRAMS: Mapping[str, Callable[..., Any]] = {
    "plain": attention.plain,
    "causal": attention.causal,
    "causal, hidden by a number": hidden(lambda i, j: i >= j, HIDING),
    "window": attention.windowed,
    "later ones": hidden(lambda i, j: i <= j, HIDING),
    "rows without keys": rows_without_keys,
    "masked softmax": masked_softmax,
    "capped": attention.capped,
    "slopes": attention.with_slopes,
    "segments": segments,
    "lengths": lengths,
    "dropped": attention.dropped,
    "with its normalizer": attention.with_normalizer,
    "linear": linear,
    "in vmap": in_vmap,
    "in checkpoint": jax.checkpoint(attention.plain),
    "library": of_library(),
    "library, causal": attention.of_jax,
    "library, window": of_library(is_causal=True, local_window_size=(32, 0)),
    "library, lengths": with_lengths_of_library,
    "library, grouped": grouped,
}
