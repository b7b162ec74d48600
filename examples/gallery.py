"""A small gallery: ordinary JAX functions that become single Triton kernels.

    jaxpr2triton dump  examples/gallery.py:layer_norm 'f32[128,64]' 'f32[64]' 'f32[64]' --grad
    jaxpr2triton check examples/gallery.py:cross_entropy 'f32[32,100]' 'i32[32]'
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Each row with mean 0 and variance 1, scaled and shifted."""
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale + bias


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The negative log-softmax of each row at its label."""
    log_p = jax.nn.log_softmax(logits, axis=-1)
    chosen = labels[:, None] == jnp.arange(logits.shape[-1])
    return -jnp.where(chosen, log_p, 0.0).sum(-1)


def gelu_block(x: jax.Array, gate: jax.Array, bias: jax.Array) -> jax.Array:
    """A gated GELU with a bias and a residual connection, as between the matmuls of a transformer."""
    return x + jax.nn.gelu(x + bias) * gate


def softmax(x: jax.Array) -> jax.Array:
    """Softmax of each row."""
    return jax.nn.softmax(x, axis=-1)
