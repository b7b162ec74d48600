"""Ensembles of differential equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import fuse
from tests.loop_programs.base import CHAOTIC, F64, WHILE, X64, LoopProgram
from tests.programs import Arguments, Rng


def lorenz(state: Any, params: Any) -> Any:
    x, y, z = state
    sigma, rho, beta = params
    return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def rk4_step(state: Any, params: Any, dt: Any) -> Any:
    k1 = lorenz(state, params)
    k2 = lorenz(state + dt / 2 * k1, params)
    k3 = lorenz(state + dt / 2 * k2, params)
    k4 = lorenz(state + dt * k3, params)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


TSIT5 = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)
TSIT5_ERROR = (
    *(-0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629),
    *(0.5823571654525552, -0.45808210592918697, 0.015151515151515152),
)


def tsit5_step(state: Any, params: Any, dt: Any) -> tuple[Any, Any]:
    """The state after a step, and an estimate of its error."""
    slopes = [lorenz(state, params)]
    for row in TSIT5:
        moved = state + dt * sum(a * k for a, k in zip(row, slopes))
        slopes.append(lorenz(moved, params))
    return moved, dt * sum(e * k for e, k in zip(TSIT5_ERROR, slopes))


def tsit5_fixed(state: Any, params: Any, dt: Any) -> Any:
    return tsit5_step(state, params, dt)[0]


def trajectory(step: Callable[..., Any], steps: int, dt: float) -> Callable[..., Any]:
    def solve(state: Any, params: Any) -> Any:
        return lax.scan(lambda s, _: (step(s, params, dt), None), state, None, length=steps)[0]

    return solve


def ensemble(step: Callable[..., Any], steps: int, dt: float) -> Callable[..., Any]:
    return jax.vmap(trajectory(step, steps, dt))


def controlled(end: float, most: int, tolerance: float) -> Callable[..., Any]:
    """Steps chosen by a PI controller, until the end is reached."""

    def solve(state: Any, params: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            time, _, _, _, count = carry
            return (time < end) & (count < most)

        def step(carry: Any) -> Any:
            time, state, dt, last_error, count = carry
            dt = jnp.minimum(dt, end - time)
            moved, error = tsit5_step(state, params, dt)
            scale = tolerance + tolerance * jnp.maximum(jnp.abs(state), jnp.abs(moved))
            error = jnp.maximum(jnp.sqrt(jnp.mean((error / scale) ** 2)), 1e-8)
            accept = error <= 1.0
            factor = jnp.clip(0.9 * error**-0.14 * last_error**0.08, 0.2, 10.0)
            return (
                jnp.where(accept, time + dt, time),
                jnp.where(accept, moved, state),
                dt * factor,
                jnp.where(accept, error, last_error),
                count + 1,
            )

        zero, one = jnp.zeros((), state.dtype), jnp.ones((), state.dtype)
        _, state, _, _, count = lax.while_loop(unfinished, step, (zero, state, 0.01 * one, one, 0))
        return state, count

    return jax.vmap(solve)


def systems(count: int, dtype: Any = np.float32) -> Arguments:
    def arguments(rng: Rng) -> tuple[Any, ...]:
        state = rng.normal(size=(count, 3)) * 5 + [0.0, 0.0, 20.0]
        params = rng.uniform(0.9, 1.1, (count, 3)) * [10.0, 28.0, 8.0 / 3.0]
        return state.astype(dtype), params.astype(dtype)

    return arguments


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram(
        *("lorenz_rk4", ensemble(rk4_step, 5, 0.01), systems(7), (0, 1), CHAOTIC),
        bench_args=systems(100_000),
        full=ensemble(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_rk4_few_states", fuse(ensemble(rk4_step, 6, 0.01), checkpoint="sqrt"), systems(7), (0, 1), CHAOTIC),
        bench_args=systems(100_000),
        full=fuse(ensemble(rk4_step, 1000, 0.01), checkpoint="sqrt"),
    ),
    LoopProgram(
        *("lorenz_rk4_single", trajectory(rk4_step, 5, 0.01), lambda rng: tuple(a[0] for a in systems(1)(rng))),
        *((0, 1), CHAOTIC),
        bench_args=lambda rng: tuple(a[0] for a in systems(1)(rng)),
        full=trajectory(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_rk4_f64", ensemble(rk4_step, 5, 0.01), systems(7, F64), (0, 1), CHAOTIC | X64),
        bench_args=systems(100_000, F64),
        full=ensemble(rk4_step, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_tsit5", ensemble(tsit5_fixed, 4, 0.01), systems(7), (0, 1), CHAOTIC),
        bench_args=systems(100_000),
        full=ensemble(tsit5_fixed, 1000, 0.01),
    ),
    LoopProgram(
        *("lorenz_controlled", controlled(0.05, 40, 1e-4), systems(5), None, CHAOTIC | WHILE),
        bench_args=systems(100_000),
        full=controlled(1.0, 10_000, 1e-6),
    ),
)
