"""Grids: equations in space, and space that moves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.ndimage import map_coordinates

from examples.algorithms.entry import Algorithm, Arguments, f32


def neighbours(u: jax.Array) -> jax.Array:
    """The sum of the four, with zeros outside."""
    wide = jnp.pad(u, 1)
    return wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]


def multigrid(right: jax.Array, *, cycles: int) -> jax.Array:
    """Poisson's equation on the unit square by V-cycles: smooth, solve for what is left on half the grid, smooth."""

    def smooth(u: jax.Array, right: jax.Array, h: float) -> jax.Array:
        for _ in range(2):
            u = 0.2 * u + 0.8 * (neighbours(u) + h * h * right) / 4
        return u

    def cycle(u: jax.Array, right: jax.Array, h: float) -> jax.Array:
        n = len(u)
        if n == 2:
            return smooth(smooth(u, right, h), right, h)
        u = smooth(u, right, h)
        left = right - (4 * u - neighbours(u)) / (h * h)
        coarse = left.reshape(n // 2, 2, n // 2, 2).mean((1, 3))
        error = cycle(jnp.zeros_like(coarse), coarse, 2 * h)
        return smooth(u + jnp.repeat(jnp.repeat(error, 2, 0), 2, 1), right, h)

    h = 1 / len(right)
    return lax.fori_loop(0, cycles, lambda _, u: cycle(u, right, h), jnp.zeros_like(right))


def advection(smoke: jax.Array, velocity: jax.Array, *, steps: int) -> jax.Array:
    """Smoke in a wind, semi-Lagrangian: each cell looks where its air was a step before, between four cells."""
    here = jnp.stack(jnp.meshgrid(*(jnp.arange(float(n)) for n in smoke.shape), indexing="ij"))
    came_from = here - velocity

    def step(smoke: jax.Array, _: None) -> tuple[jax.Array, None]:
        return map_coordinates(smoke, list(came_from), order=1, mode="wrap"), None

    return lax.scan(step, smoke, None, length=steps)[0]


def seismogram(speed: jax.Array, source: jax.Array) -> jax.Array:
    """What a row of microphones hears of a bang below it: sound in a ground of varying speed, by leapfrog."""
    courant = (0.5 * speed) ** 2
    middle = speed.shape[0] // 2, speed.shape[1] // 2

    def step(before: tuple[jax.Array, jax.Array], bang: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        last, u = before
        after = 2 * u - last + courant * (neighbours(u) - 4 * u)
        after = after.at[middle].add(bang)
        return (u, after), after[1]

    silence = jnp.zeros_like(speed)
    return lax.scan(step, (silence, silence), source)[1]


def _smoke(rng: np.random.Generator) -> Arguments:
    return rng.random((6, 7), dtype=np.float32), rng.normal(size=(2, 6, 7)).astype(np.float32)


def _ground(rng: np.random.Generator) -> Arguments:
    return (0.5 + rng.random((6, 8))).astype(np.float32), rng.normal(size=9).astype(np.float32)


ALGORITHMS = (
    Algorithm(
        multigrid,
        small=lambda rng: (rng.normal(size=(8, 8)).astype(np.float32),),
        realistic=(f32(128, 128),),
        few={"cycles": 2},
        many={"cycles": 10},
        by=(0,),
        along=(0,),
    ),
    Algorithm(
        advection,
        small=_smoke,
        realistic=(f32(128, 128), f32(2, 128, 128)),
        few={"steps": 3},
        many={"steps": 200},
        by=(0, 1),
        along=(0, None),
    ),
    Algorithm(seismogram, small=_ground, realistic=(f32(128, 128), f32(1000)), by=(0, 1), along=(None, 0)),
)
