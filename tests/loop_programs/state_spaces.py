"""State spaces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import ONE, LoopProgram, scaled
from tests.programs import Arguments, Rng, floats, join, positive


def hmm_forward(log_start: Any, log_moves: Any, log_likelihoods: Any) -> Any:
    def step(alpha: Any, likelihood: Any) -> Any:
        alpha = jax.nn.logsumexp(alpha[:, None] + log_moves, axis=0) + likelihood
        return alpha, None

    alpha, _ = lax.scan(step, log_start + log_likelihoods[0], log_likelihoods[1:])
    return jax.nn.logsumexp(alpha)


def hidden_markov(states: int, steps: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        start, moves = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), states)
        return tuple(a.astype(np.float32) for a in (np.log(start), np.log(moves), -rng.random((steps, states))))

    return arguments


def kalman(model: Any, observations: Any) -> Any:
    """The log likelihood of the observations."""
    f, h, q, r = model["f"], model["h"], model["q"], model["r"]

    def step(carry: Any, observed: Any) -> Any:
        mean, cov = carry
        mean, cov = f @ mean, f @ cov @ f.T + q
        surprise = observed - h @ mean
        factor = jnp.linalg.cholesky(h @ cov @ h.T + r)
        gain = jax.scipy.linalg.cho_solve((factor, True), h @ cov).T
        white = jax.scipy.linalg.solve_triangular(factor, surprise, lower=True)
        log_likelihood = -0.5 * white @ white - jnp.log(jnp.diagonal(factor)).sum() - jnp.log(2 * jnp.pi)
        return (mean + gain @ surprise, cov - gain @ h @ cov), log_likelihood

    size = f.shape[0]
    start = jnp.zeros(size, f.dtype), jnp.eye(size, dtype=f.dtype)
    return lax.scan(step, start, observations)[1].sum()


def linear_gaussian(steps: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        q, r = (0.3 * rng.normal(size=(n, n)) for n in (4, 2))
        f = 0.9 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
        model = {"f": f, "h": rng.normal(size=(2, 4)), "q": q @ q.T + np.eye(4) / 10, "r": r @ r.T + np.eye(2) / 10}
        return {k: v.astype(np.float32) for k, v in model.items()}, rng.normal(size=(steps, 2)).astype(np.float32)

    return arguments


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    """x, delta: [batch, steps, channels]; a: [channels, state]; b, c: [batch, steps, state]."""

    def one(x: Any, delta: Any, b: Any, c: Any) -> Any:
        def step(h: Any, now: Any) -> Any:
            x, delta, b, c = now
            h = jnp.exp(delta[:, None] * a) * h + (delta * x)[:, None] * b[None, :]
            return h, h @ c

        return lax.scan(step, jnp.zeros_like(a), (x, delta, b, c))[1]

    return jax.vmap(one)(x, delta, b, c)


def selective(batch: int, steps: int, channels: int, state: int) -> Arguments:
    return join(
        floats((batch, steps, channels)),
        positive((batch, steps, channels)),
        scaled(-1.0, positive((channels, state))),
        floats((batch, steps, state), (batch, steps, state)),
    )


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram("hmm_forward", hmm_forward, hidden_markov(5, 6), (0, 1, 2), ONE, hidden_markov(32, 1000)),
    LoopProgram("kalman", kalman, linear_gaussian(4), (0, 1), ONE, linear_gaussian(1000)),
    LoopProgram(
        *("selective_scan", selective_scan, selective(2, 5, 6, 4), (0, 1, 2, 3, 4), ONE),
        bench_args=selective(8, 2048, 64, 16),
    ),
)
