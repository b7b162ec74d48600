"""Fixed points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import ONE, WHILE, LoopProgram, uniform
from tests.programs import Arguments, Rng, floats


def sinkhorn(steps: int) -> Callable[..., Any]:
    def solve(cost: Any, a: Any, b: Any) -> Any:
        kernel = jnp.exp(-cost / 0.5)

        def step(_: Any, scales: Any) -> Any:
            _, v = scales
            u = a / (kernel @ v)
            return u, b / (kernel.T @ u)

        u, v = lax.fori_loop(0, steps, step, (jnp.ones_like(a), jnp.ones_like(b)))
        return jnp.sum(u[:, None] * kernel * v[None, :] * cost)

    return jax.vmap(solve)


def transports(batch: int, size: int) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        cost, a, b = rng.random((batch, size, size)), *rng.dirichlet(np.ones(size), (2, batch))
        return tuple(x.astype(np.float32) for x in (cost, a, b))

    return arguments


def value_iteration(reward: Any) -> Any:
    def improved(values: Any) -> Any:
        padded = jnp.pad(values, 1, mode="edge")
        near = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
        return reward + 0.9 * jnp.max(jnp.stack(near), axis=0)

    def unfinished(state: Any) -> Any:
        _, change, count = state
        return (change > 1e-3) & (count < 1000)

    def step(state: Any) -> Any:
        values, _, count = state
        better = improved(values)
        return better, jnp.max(jnp.abs(better - values)), count + 1

    values, _, count = lax.while_loop(unfinished, step, (jnp.zeros_like(reward), jnp.inf, 0))
    return values, count


def kepler(mean_anomaly: Any, eccentricity: Any) -> Any:
    """E − e sin E = M, by Newton's method, each equation until it is solved."""

    def solve(m: Any, e: Any) -> Any:
        def off(x: Any) -> Any:
            return x - e * jnp.sin(x) - m

        def unfinished(state: Any) -> Any:
            x, count = state
            return (jnp.abs(off(x)) > 1e-5) & (count < 50)

        def step(state: Any) -> Any:
            x, count = state
            return x - off(x) / jax.grad(off)(x), count + 1

        return lax.while_loop(unfinished, step, (m, 0))

    return jax.vmap(solve)(mean_anomaly, eccentricity)


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram(
        *("sinkhorn", sinkhorn(5), transports(2, 6), (0, 1, 2), ONE),
        bench_args=transports(32, 64),
        full=sinkhorn(100),
    ),
    LoopProgram("value_iteration", value_iteration, uniform(0.0, 1.0, (5, 7)), None, WHILE, floats((50, 50))),
    LoopProgram(
        *("kepler", kepler, uniform(0.0, 0.8, (9,), (9,)), None, WHILE),
        bench_args=uniform(0.0, 0.8, (100_000,), (100_000,)),
    ),
)
