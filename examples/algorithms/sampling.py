"""Sampling: magnets, hidden states behind what is seen, and functions from a posterior."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import KEY, Algorithm, Arguments, f32


def ising(key: jax.Array, spins: jax.Array, coupling: jax.Array, *, sweeps: int) -> jax.Array:
    """The magnetization after each sweep: Metropolis on the black fields of a chess board, and then on the white."""
    rows, columns = jnp.indices(spins.shape)
    black = (rows + columns) % 2 == 0

    def flipped(spins: jax.Array, key: jax.Array, fields: jax.Array) -> jax.Array:
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        accepted = jax.random.uniform(key, spins.shape) < jnp.exp(-2 * coupling * spins * around)
        return jnp.where(fields & accepted, -spins, spins)

    def sweep(spins: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = jax.random.split(key)
        spins = flipped(flipped(spins, first, black), second, ~black)
        return spins, spins.mean()

    return lax.scan(sweep, spins, jax.random.split(key, sweeps))[1]


def particle_filter(
    key: jax.Array, seen: jax.Array, persistence: jax.Array, size: jax.Array, *, particles: int
) -> tuple[jax.Array, jax.Array]:
    """A stochastic volatility by a bootstrap filter with systematic resampling: its mean, and the log likelihood."""

    def step(x: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        y, key = now
        of_noise, of_places = jax.random.split(key)
        x = persistence * x + size * jax.random.normal(of_noise, (particles,))
        log_weight = -0.5 * (x + y**2 * jnp.exp(-x) + jnp.log(2 * jnp.pi))
        log_mean = jax.nn.logsumexp(log_weight) - jnp.log(particles)
        weight = jax.nn.softmax(log_weight)
        mean = (weight * x).sum()
        marks = (jnp.arange(particles) + jax.random.uniform(of_places)) / particles
        parents = jnp.searchsorted(jnp.cumsum(weight), marks)
        return x[jnp.minimum(parents, particles - 1)], (mean, log_mean)

    first, key = jax.random.split(key)
    start = size * jax.random.normal(first, (particles,))
    means, log_means = lax.scan(step, start, (seen, jax.random.split(key, len(seen))))[1]
    return means, log_means.sum()


def elliptical_slices(key: jax.Array, cholesky: jax.Array, labels: jax.Array, *, samples: int) -> jax.Array:
    """A Gaussian process that classifies: posterior samples, each from an ellipse that shrinks until one fits."""

    def log_likelihood(f: jax.Array) -> jax.Array:
        return jax.nn.log_sigmoid(labels * f).sum()

    def sample(f: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_prior, of_height, of_angle, of_shrinking = jax.random.split(key, 4)
        nu = cholesky @ jax.random.normal(of_prior, f.shape)
        height = log_likelihood(f) + jnp.log(jax.random.uniform(of_height))
        angle = jax.random.uniform(of_angle, maxval=2 * jnp.pi)

        def at(angle: jax.Array) -> jax.Array:
            return f * jnp.cos(angle) + nu * jnp.sin(angle)

        def shrink(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            angle, low, high, key = state
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            key, drawn = jax.random.split(key)
            return jax.random.uniform(drawn, minval=low, maxval=high), low, high, key

        start = (angle, angle - 2 * jnp.pi, angle, of_shrinking)
        angle = lax.while_loop(lambda state: log_likelihood(at(state[0])) <= height, shrink, start)[0]
        return at(angle), at(angle)

    return lax.scan(sample, jnp.zeros_like(labels), jax.random.split(key, samples))[1]


def _spins(rng: np.random.Generator) -> Arguments:
    return _key(rng), rng.choice([-1.0, 1.0], (4, 6)).astype(np.float32), np.float32(0.3)


def _returns(rng: np.random.Generator) -> Arguments:
    return _key(rng), rng.normal(size=6).astype(np.float32), np.float32(0.9), np.float32(0.3)


def _classified(rng: np.random.Generator) -> Arguments:
    x = np.sort(rng.normal(size=6))
    covariance = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-3 * np.eye(6)
    return _key(rng), np.linalg.cholesky(covariance).astype(np.float32), np.sign(x).astype(np.float32)


def _key(rng: np.random.Generator) -> jax.Array:
    return jax.random.key(int(rng.integers(1 << 30)))


ALGORITHMS = (
    Algorithm(
        ising,
        small=_spins,
        realistic=(KEY, f32(64, 64), f32()),
        few={"sweeps": 2},
        many={"sweeps": 1000},
        why_no_gradient="spins flip or do not",
        along=(0, 0, 0),
        lanes=128,
    ),
    Algorithm(
        particle_filter,
        small=_returns,
        realistic=(KEY, f32(500), f32(), f32()),
        few={"particles": 8},
        many={"particles": 1024},
        by=(2, 3),
        along=(0, None, 0, 0),
        lanes=128,
    ),
    Algorithm(
        elliptical_slices,
        small=_classified,
        realistic=(KEY, f32(64, 64), f32(64)),
        few={"samples": 3},
        many={"samples": 1000},
        why_no_gradient="a `while` has none",
        along=(0, None, None),
        lanes=256,
    ),
)
