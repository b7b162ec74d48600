"""Signals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import ONE, LoopProgram
from tests.programs import Arguments, Rng, floats, join


def thomas(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    """Tridiagonal systems, one for each column."""

    def eliminate(carry: Any, row: Any) -> Any:
        c, d = carry
        below, middle, above, right = row
        pivot = middle - below * c
        c, d = above / pivot, (right - below * d) / pivot
        return (c, d), (c, d)

    def substitute(x: Any, row: Any) -> Any:
        c, d = row
        x = d - c * x
        return x, x

    zero = jnp.zeros_like(right[0])
    _, rows = lax.scan(eliminate, (zero, zero), (lower, diagonal, upper, right))
    return lax.scan(substitute, zero, rows, reverse=True)[1]


def tridiagonal(size: int, batch: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        lower, upper, right = rng.normal(size=(3, size, batch))
        diagonal = 2 + np.abs(lower) + np.abs(upper)
        return tuple(x.astype(np.float32) for x in (lower, diagonal, upper, right))

    return arguments


def biquad(signal: Any, b: Any, a: Any) -> Any:
    """A filter of second order (direct form II, transposed) over [samples, channels]."""

    def step(carry: Any, x: Any) -> Any:
        s1, s2 = carry
        y = b[0] * x + s1
        return (b[1] * x - a[0] * y + s2, b[2] * x - a[1] * y), y

    zero = jnp.zeros_like(signal[0])
    return lax.scan(step, (zero, zero), signal)[1]


def filters(samples: int, channels: int) -> Arguments:
    def coefficients(rng: Rng) -> tuple[Any, ...]:
        return np.array([0.2, 0.4, 0.2], np.float32), np.array([-0.4, 0.2], np.float32)

    return join(floats((samples, channels)), coefficients)


def ctc_loss(logits: Any, labels: Any, lengths: Any, label_lengths: Any) -> Any:
    """logits: [batch, steps, symbols], symbol 0 is blank; labels: [batch, most labels]."""

    def one(logits: Any, labels: Any, length: Any, label_length: Any) -> Any:
        log_p = jax.nn.log_softmax(logits)
        places = 2 * labels.shape[0] + 1
        symbols = jnp.zeros(places, labels.dtype).at[1::2].set(labels)
        before = jnp.concatenate([jnp.full(2, -1, labels.dtype), symbols[:-2]])
        may_skip = (symbols != 0) & (symbols != before)
        low = jnp.full((), -1e5, logits.dtype)

        def step(alpha: Any, now: Any) -> Any:
            log_p, t = now
            one_back = jnp.concatenate([low[None], alpha[:-1]])
            two_back = jnp.where(may_skip, jnp.concatenate([low[None], low[None], alpha[:-2]]), low)
            moved = jnp.logaddexp(jnp.logaddexp(alpha, one_back), two_back) + log_p[symbols]
            return jnp.where(t < length, moved, alpha), None

        start = jnp.where(jnp.arange(places) < 2, log_p[0][symbols], low)
        alpha, _ = lax.scan(step, start, (log_p[1:], jnp.arange(1, logits.shape[0])))
        return -jnp.logaddexp(alpha[2 * label_length], alpha[2 * label_length - 1])

    return jax.vmap(one)(logits, labels, lengths, label_lengths)


def spoken(batch: int, steps: int, most: int, symbols: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        logits = rng.normal(size=(batch, steps, symbols)).astype(np.float32)
        labels = rng.integers(1, symbols, (batch, most), dtype=np.int32)
        return (
            logits,
            labels,
            rng.integers(steps - steps // 4, steps + 1, batch, dtype=np.int32),
            rng.integers(1, most + 1, batch, dtype=np.int32),
        )

    return arguments


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram("thomas", thomas, tridiagonal(6, 5), (0, 1, 2, 3), ONE, tridiagonal(512, 4096)),
    LoopProgram("biquad", biquad, filters(10, 5), (0, 1, 2), ONE, filters(48_000, 64)),
    LoopProgram("ctc_loss", ctc_loss, spoken(2, 6, 3, 5), (0,), ONE, spoken(16, 100, 20, 32)),
)
