"""Functions whose kernels are goldens. Their lines are quoted in the kernels, so a line that moves moves the goldens.

They use few of JAX's own functions, whose jaxprs differ between versions.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-6) * scale + bias


def softmax(x: Any) -> Any:
    peak = x.max(-1, keepdims=True)
    weights = jnp.exp(x - peak)
    return weights / weights.sum(-1, keepdims=True)


def column_softmax(x: Any) -> Any:
    weights = jnp.exp(x - x.max(0))
    return weights / weights.sum(0)


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    left, right = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-right, left], axis=-1) * sin


def interleaved(x: Any, cos: Any, sin: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def column_sum(x: Any) -> Any:
    return x.sum(0)


def double(x: Any) -> Any:
    return x * 2


def turned(x: Any) -> Any:
    return x.T * 2


def turned_inside(x: Any) -> Any:
    return x.transpose(0, 2, 1) + 1


def outer(x: Any, y: Any) -> Any:
    return x[:, None] * y[None, :]


def padded(x: Any) -> Any:
    return jnp.pad(x, ((0, 0), (1, 2)))


def blurred(x: Any) -> Any:
    return x[:, 2:] + 2 * x[:, 1:-1] + x[:, :-2]


def length(x: Any) -> Any:
    return jnp.sqrt((x * x).sum(-1))


def best(x: Any) -> Any:
    return jnp.argmax(x, -1)


def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def lstm(params: Any, h: Any, c: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = lax.logistic(f) * c + lax.logistic(i) * jnp.tanh(g)
        h = lax.logistic(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), xs)


def smoothed(rate: Any, level: Any, xs: Any) -> Any:
    def step(level: Any, x: Any) -> Any:
        error = x - level
        level = level + rate * jnp.sin(error)
        return level, error * error

    return lax.scan(step, level, xs)[1].sum()
