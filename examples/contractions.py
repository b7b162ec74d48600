"""Matrix products, and sums over pairs of rows, with what is around them in the same kernel.

    jaxpr2triton dump examples/contractions.py:linear_gelu 'bf16[4096,1024]' 'bf16[1024,4096]' 'bf16[4096]' \
        --contractions triton
"""

import jax
import jax.numpy as jnp


def linear_gelu(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
    """A product with its bias and its activation: one kernel, and nothing in between is written."""
    return jax.nn.gelu(x @ w + bias)


def distances(w: jax.Array, x: jax.Array) -> jax.Array:
    """The squared distance of each column of w and each of x; what is summed is never written."""
    return ((w[:, :, None] - x[:, None, :]) ** 2).sum(0)


def gaussian_product(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """For each point the sum of all values, by how near they are."""
    near = jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1))
    return near @ v


def nearest(x: jax.Array, y: jax.Array) -> jax.Array:
    """For each point the nearest one of the others."""
    return jnp.argmin(((x[:, None] - y[None]) ** 2).sum(-1), axis=1)


def perceptron(params: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
    """The loss of two layers."""
    w1, b1, w2, b2 = params
    hidden = jnp.tanh(x @ w1 + b1)
    return ((hidden @ w2 + b2) ** 2).sum()
