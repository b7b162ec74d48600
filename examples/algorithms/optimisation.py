"""Optimisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import KEY, Algorithm, Arguments, f32


def rosenbrock(x: jax.Array) -> jax.Array:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def rastrigin(x: jax.Array) -> jax.Array:
    return (x**2 - 10 * jnp.cos(2 * jnp.pi * x) + 10).sum()


def nelder_mead(start: jax.Array, *, steps: int) -> tuple[jax.Array, jax.Array]:
    """The least of Rosenbrock's function without derivatives: a simplex that reflects its worst corner, or shrinks."""
    size = len(start)

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        corners, values = carry
        order = jnp.argsort(values)
        corners, values = corners[order], values[order]
        worst, middle = corners[-1], corners[:-1].mean(0)
        reflected, expanded = 2 * middle - worst, 3 * middle - 2 * worst
        of_reflected, of_expanded = rosenbrock(reflected), rosenbrock(expanded)
        towards = jnp.where(of_reflected < values[-1], reflected, worst)
        contracted = (middle + towards) / 2
        of_contracted = rosenbrock(contracted)

        expands = (of_reflected < values[0]) & (of_expanded < of_reflected)
        reflects = of_reflected < values[-2]
        corner = jnp.where(expands, expanded, jnp.where(reflects, reflected, contracted))
        value = jnp.where(expands, of_expanded, jnp.where(reflects, of_reflected, of_contracted))
        shrinks = ~reflects & ~expands & (of_contracted >= jnp.minimum(of_reflected, values[-1]))
        shrunk = (corners + corners[0]) / 2
        corners = jnp.where(shrinks, shrunk, corners.at[-1].set(corner))
        values = jnp.where(shrinks, jax.vmap(rosenbrock)(shrunk), values.at[-1].set(value))
        return (corners, values), None

    corners = start + jnp.concatenate([jnp.zeros((1, size)), 0.5 * jnp.eye(size)])
    corners, values = lax.scan(step, (corners, jax.vmap(rosenbrock)(corners)), None, length=steps)[0]
    return corners[values.argmin()], values.min()


def lasso(a: jax.Array, b: jax.Array, weight: jax.Array, *, steps: int) -> jax.Array:
    """Least squares with a price on absolute values, by the alternating direction method of multipliers."""
    inverse = jnp.linalg.inv(a.T @ a + jnp.eye(a.shape[1]))
    target = a.T @ b

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        z, dual = carry
        x = inverse @ (target + z - dual)
        moved = x + dual
        z = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - weight, 0.0)
        return (z, moved - z), None

    return lax.scan(step, (jnp.zeros_like(target), jnp.zeros_like(target)), None, length=steps)[0][0]


def differential_evolution(key: jax.Array, population: jax.Array, *, generations: int) -> tuple[jax.Array, jax.Array]:
    """The least of Rastrigin's function: each member tries the difference of two others, added to a third one."""
    many, size = population.shape

    def generation(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        population, values = carry
        of_parents, of_crossing, of_forced = jax.random.split(key, 3)
        first, second, third = jax.random.randint(of_parents, (3, many), 0, many)
        mutant = population[first] + 0.7 * (population[second] - population[third])
        forced = jax.random.randint(of_forced, (many, 1), 0, size) == jnp.arange(size)
        crossed = (jax.random.uniform(of_crossing, population.shape) < 0.9) | forced
        trial = jnp.where(crossed, mutant, population)
        of_trial = jax.vmap(rastrigin)(trial)
        better = of_trial < values
        population = jnp.where(better[:, None], trial, population)
        values = jnp.where(better, of_trial, values)
        return (population, values), values.min()

    start = (population, jax.vmap(rastrigin)(population))
    (population, values), best = lax.scan(generation, start, jax.random.split(key, generations))
    return population[values.argmin()], best


def _regression(rng: np.random.Generator) -> Arguments:
    return rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=6).astype(np.float32), np.float32(0.3)


def _population(rng: np.random.Generator) -> Arguments:
    return jax.random.key(int(rng.integers(1 << 30))), rng.uniform(-5, 5, (8, 2)).astype(np.float32)


ALGORITHMS = (
    Algorithm(
        nelder_mead,
        small=lambda rng: (rng.normal(size=2).astype(np.float32),),
        realistic=(f32(4),),
        few={"steps": 12},
        many={"steps": 400},
        why_no_gradient="it is for functions without derivatives",
        along=(0,),
        lanes=4096,
    ),
    Algorithm(
        lasso,
        small=_regression,
        realistic=(f32(512, 96), f32(512), f32()),
        few={"steps": 8},
        many={"steps": 200},
        by=(0, 1, 2),
        along=(None, None, 0),
    ),
    Algorithm(
        differential_evolution,
        small=_population,
        realistic=(KEY, f32(128, 16)),
        few={"generations": 3},
        many={"generations": 500},
        why_no_gradient="a member is replaced or is not",
        along=(0, 0),
        lanes=64,
    ),
)
