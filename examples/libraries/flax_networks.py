"""flax: recurrent networks and attention in both of its dialects."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

from examples.libraries.example import Example

LSTM = linen.RNN(linen.OptimizedLSTMCell(16))
NORM = linen.LayerNorm()
GRAPH, STATE = nnx.split(nnx.RNN(nnx.GRUCell(8, 16, rngs=nnx.Rngs(0))))


def linen_lstm(variables: Any, sequences: jax.Array) -> jax.Array:
    """linen's LSTM over a batch of sequences."""
    return LSTM.apply(variables, sequences)


def linen_layer_norm(variables: Any, x: jax.Array) -> jax.Array:
    """linen's layer norm with dropout by a key behind it."""
    y = NORM.apply(variables, x)
    return linen.Dropout(0.1, deterministic=False).apply({}, y, rngs={"dropout": jax.random.key(0)})


def nnx_gru(state: Any, sequences: jax.Array) -> jax.Array:
    """nnx's GRU over a batch of sequences."""
    return nnx.merge(GRAPH, state)(sequences)


def linen_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """linen's attention with a causal mask."""
    return linen.dot_product_attention(q, k, v, mask=linen.make_causal_mask(jnp.ones(q.shape[:2])))


def nnx_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """nnx's attention."""
    return nnx.dot_product_attention(q, k, v)


def _queries(key: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.random.normal(each, (2, 40, 4, 16)) for each in jax.random.split(key, 3))


def _lstm(key: jax.Array) -> tuple[Any, jax.Array]:
    xs = jax.random.normal(key, (16, 10, 8))
    return LSTM.init(jax.random.key(1), xs), xs


def _norm(key: jax.Array) -> tuple[Any, jax.Array]:
    x = jax.random.normal(key, (64, 32))
    return NORM.init(jax.random.key(1), x), x


def _gru(key: jax.Array) -> tuple[Any, jax.Array]:
    return jax.tree.map(jnp.asarray, STATE), jax.random.normal(key, (16, 10, 8))


EXAMPLES = (
    Example(linen_lstm, _lstm, gradient=True, batched=(1,)),
    Example(linen_layer_norm, _norm, gradient=True, batched=(1,)),
    Example(nnx_gru, _gru, batched=(1,)),
    Example(linen_attention, _queries, gradient=True, batched=(0, 1, 2)),
    Example(nnx_attention, _queries, gradient=True, batched=(0, 1, 2)),
)
