"""Recurrent networks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import BF16, LOW, ONE, LoopProgram, scaled, together
from tests.programs import Arguments, floats, join


def rnn(params: Any, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w"] + h @ params["u"] + params["b"])
        return h, h

    return lax.scan(step, h, xs)


def rnn_projected(params: Any, xs: Any, h: Any) -> Any:
    """The inputs are multiplied by their weights all at once."""

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ params["u"])
        return h, h

    return lax.scan(step, h, xs @ params["w"] + params["b"])


def gru(params: Any, xs: Any, h: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        xr, xz, xn = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
        hr, hz, hn = jnp.split(h @ params["u"], 3, axis=-1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
        return h, h

    return lax.scan(step, h, xs)


def lstm(params: Any, xs: Any, h: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ params["w"] + h @ params["u"] + params["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, jnp.zeros_like(h)), xs)


def recurrent(steps: int, batch: int, features: int, hidden: int, gates: int, dtype: Any = np.float32) -> Arguments:
    width = gates * hidden
    weights = together(
        w=scaled(features**-0.5, floats((features, width), dtype=dtype)),
        u=scaled(hidden**-0.5, floats((hidden, width), dtype=dtype)),
        b=floats((width,), dtype=dtype),
    )
    return join(weights, floats((steps, batch, features), (batch, hidden), dtype=dtype))


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram(
        *("rnn", rnn, recurrent(5, 3, 6, 8, 1), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 64, 64, 1),
    ),
    LoopProgram(
        *("rnn_projected", rnn_projected, recurrent(5, 3, 6, 8, 1), (0, 1, 2), frozenset({"leftovers"})),
        bench_args=recurrent(512, 64, 64, 64, 1),
    ),
    LoopProgram(
        *("rnn_bf16", rnn, recurrent(5, 16, 16, 16, 1, BF16), (0, 1, 2), LOW),
        bench_args=recurrent(512, 64, 128, 128, 1, BF16),
    ),
    LoopProgram(
        *("gru", gru, recurrent(5, 3, 6, 8, 3), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 32, 32, 3),
    ),
    LoopProgram(
        *("lstm", lstm, recurrent(5, 3, 6, 8, 4), (0, 1, 2), ONE),
        bench_args=recurrent(512, 64, 128, 128, 4),
    ),
    LoopProgram(
        *("lstm_bf16", lstm, recurrent(4, 16, 16, 16, 4, BF16), (0, 1, 2), LOW),
        bench_args=recurrent(512, 64, 64, 64, 4, BF16),
    ),
)
