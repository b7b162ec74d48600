"""diffrax: differential equations, one or an ensemble of them."""

from __future__ import annotations

import diffrax
import jax
import jax.numpy as jnp

from examples.libraries.example import Example


def lorenz(t: jax.Array, y: jax.Array, args: jax.Array) -> jax.Array:
    """The right-hand side: `args` are sigma, rho and beta."""
    sigma, rho, beta = args
    return jnp.stack([sigma * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - beta * y[2]])


def fixed_steps(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """One trajectory, 100 steps of Tsit5 of one size."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz), diffrax.Tsit5(), t0=0.0, t1=1.0, dt0=0.01, y0=y0, args=parameters
    )
    return solution.ys[-1]


def adaptive_ensemble(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """An ensemble, Tsit5 with a PID controller: each trajectory has steps of its own."""

    def solve(y0: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lorenz),
            diffrax.Tsit5(),
            t0=0.0,
            t1=1.0,
            dt0=0.01,
            y0=y0,
            args=parameters,
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        )
        return solution.ys[-1]

    return jax.vmap(solve)(y0)


def saved_at_times(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """An adaptive trajectory, read at ten times between the steps."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=0.01,
        y0=y0,
        args=parameters,
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 10)),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
    )
    return solution.ys


def checkpointed_gradient(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """Gradients through the steps themselves, by checkpoints."""

    def loss(parameters: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lorenz),
            diffrax.Heun(),
            t0=0.0,
            t1=0.5,
            dt0=0.01,
            y0=y0,
            args=parameters,
            adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=8),
            max_steps=64,
        )
        return jnp.sum(solution.ys[-1] ** 2)

    return jax.grad(loss)(parameters)


def adjoint_gradient(y0: jax.Array, parameters: jax.Array) -> jax.Array:
    """Gradients by the adjoint equation, solved backwards in time."""

    def loss(parameters: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lorenz),
            diffrax.Heun(),
            t0=0.0,
            t1=0.5,
            dt0=0.01,
            y0=y0,
            args=parameters,
            adjoint=diffrax.BacksolveAdjoint(),
            max_steps=64,
        )
        return jnp.sum(solution.ys[-1] ** 2)

    return jax.grad(loss)(parameters)


def _one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(key, (3,)), jnp.array([10.0, 28.0, 8 / 3])


def _ensemble(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(key, (1024, 3)), jnp.array([10.0, 28.0, 8 / 3])


EXAMPLES = (
    Example(fixed_steps, _one),
    Example(adaptive_ensemble, _ensemble, batched=(0,), allowed=1e-3),
    Example(saved_at_times, _one, allowed=1e-3),
    Example(checkpointed_gradient, _one),
    Example(adjoint_gradient, _one),
)
