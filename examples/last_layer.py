"""Losses behind a last layer of many classes, as users write them; what the layer makes is never whole in memory.

    jaxpr2triton explain examples/last_layer.py:cross_entropy 'bf16[4096,768]' 'bf16[768,50257]' 'i32[4096]' --grad

Features are f[rows, features], the layer f[features, classes] or, as `tied` has it, the table of an embedding, and
labels i32[rows]. Rows are made in chunks, each of which is multiplied, compared with its labels, and in gradients
multiplied twice more, before the next one: docs/design.md, Rows in chunks, tells when.
"""

import jax
import jax.numpy as jnp

IGNORED = -100  # the label of what does not count


def of_labels(x: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, labels[:, None], 1)[:, 0]


def cross_entropy(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    return -of_labels(jax.nn.log_softmax((h @ w).astype(jnp.float32)), labels).mean()


def of_16_bits(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """Whose logarithms are as short as its features."""
    return -of_labels(jax.nn.log_softmax(h @ w), labels).mean()


def with_integer_labels(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """As optax has it."""
    logits = (h @ w).astype(jnp.float32)
    logits -= jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    return (jnp.log(jnp.exp(logits).sum(-1)) - of_labels(logits, labels)).mean()


def one_hot(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jax.nn.one_hot(labels, w.shape[1])
    return -(chosen * jax.nn.log_softmax((h @ w).astype(jnp.float32))).sum(-1).mean()


def tied(h: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    """With the table of an embedding, a row for each class."""
    return cross_entropy(h, table.T, labels)


def ignoring(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of the rows that count."""
    counts = labels != IGNORED
    logits = (h @ w).astype(jnp.float32)
    losses = jax.nn.logsumexp(logits, -1) - of_labels(logits, jnp.where(counts, labels, 0))
    return jnp.where(counts, losses, 0).sum() / jnp.maximum(counts.sum(), 1)


def smoothed(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """With some weight on all classes, and a z-loss."""
    logits = (h @ w).astype(jnp.float32)
    total = jax.nn.logsumexp(logits, -1)
    return (total - 0.9 * of_labels(logits, labels) - 0.1 * logits.mean(-1) + 1e-4 * total**2).mean()


def capped(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """Of logits between -30 and 30."""
    logits = 30 * jnp.tanh((h @ w).astype(jnp.float32) / 30)
    return (jax.nn.logsumexp(logits, -1) - of_labels(logits, labels)).mean()


def next_tokens(h: jax.Array, w: jax.Array, labels: jax.Array) -> jax.Array:
    """Of sequences, f[batch, time, features]: each place is asked for the label of the next one."""
    logits = jnp.einsum("btf,fc->btc", h, w)[:, :-1].astype(jnp.float32)
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1)
    return (jax.nn.logsumexp(logits, -1) - of_labels(logits, labels)).mean()
