"""Attention as users write it, each one kernel, and three with its gradients; nothing of all pairs is in memory.

    jaxpr2triton dump examples/attention.py:causal 'bf16[4,16,2048,64]' 'bf16[4,16,2048,64]' 'bf16[4,16,2048,64]'

Queries, keys and values are f[batch, heads, time, features].
"""

import math

import jax
import jax.numpy as jnp


def scores(q: jax.Array, k: jax.Array) -> jax.Array:
    return jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.asarray(math.sqrt(q.shape[-1]), q.dtype)


def weighed(scores: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(v.dtype), v)


def places(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None]


def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return weighed(scores(q, k), v)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Of the keys up to its own place: half of all steps are left out, and few of the others ask."""
    i, j = places(q, k)
    return weighed(jnp.where(i >= j, scores(q, k), -jnp.inf), v)


def windowed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Of the last 64 keys."""
    i, j = places(q, k)
    return weighed(jnp.where((i >= j) & (i - j < 64), scores(q, k), -jnp.inf), v)


def capped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return weighed(20 * jnp.tanh(scores(q, k) / 20), v)


def with_slopes(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The farther a key is, the less it weighs, in each head by another measure."""
    i, j = places(q, k)
    slope = 2.0 ** -jnp.arange(1, q.shape[1] + 1)[:, None, None]
    return weighed(scores(q, k) - (slope * jnp.abs(i - j)).astype(q.dtype), v)


def dropped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A tenth of the weights is dropped: which, each kernel finds out again."""
    weights = jax.nn.softmax(scores(q, k), -1)
    kept = jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.where(kept, weights / 0.9, 0).astype(v.dtype), v)


def with_normalizer(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The logarithm of the sum of each row as well, by which parts of the keys are brought together."""
    return plain(q, k, v), jax.nn.logsumexp(scores(q, k), -1)


def of_jax(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """What JAX has for that, whose arrays have heads behind times."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)
