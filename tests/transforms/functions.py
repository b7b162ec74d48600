"""Little functions and arrays that the transformation cases share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed + 31 * len(shape)).normal(size=shape), dtype)


X = normal(3, 4)
Y = normal(3, 4, seed=1)
V = normal(4)
W = normal(4, 4, seed=2)


def wave(x: Any) -> Any:
    return jnp.sin(x) * x


def mix(x: Any, y: Any) -> Any:
    return jnp.tanh(x * y) + x * jnp.exp(-y * y)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale + bias


def softmax(x: Any) -> Any:
    e = jnp.exp(x - jax.lax.stop_gradient(x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def energy(x: Any) -> Any:
    """A number with a dense Hessian."""
    return jnp.sum(jnp.sin(x) * jnp.sum(x**2))


def dense(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"] + params["b"])


PARAMS = {"w": W, "b": V}
