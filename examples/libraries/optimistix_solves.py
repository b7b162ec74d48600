"""optimistix: roots, fixed points, least squares and minima."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optimistix

from examples.libraries.example import Example


def newton_root(x0: jax.Array, target: jax.Array) -> jax.Array:
    """The root of three equations by Newton's method; differentiated implicitly."""

    def residuals(x: jax.Array, target: jax.Array) -> jax.Array:
        return x + 0.3 * jnp.tanh(jnp.roll(x, 1)) - target

    solver = optimistix.Newton(rtol=1e-5, atol=1e-5)
    return optimistix.root_find(residuals, solver, x0, target).value


def bisection(target: jax.Array) -> jax.Array:
    """The square roots of many numbers, each by bisection."""

    def root(target: jax.Array) -> jax.Array:
        solver = optimistix.Bisection(rtol=1e-5, atol=1e-5)
        options = {"lower": jnp.float32(0), "upper": jnp.float32(10)}
        return optimistix.root_find(
            lambda x, target: x * x - target, solver, jnp.float32(1), target, options=options
        ).value

    return jax.vmap(root)(target)


def fitted_curve(parameters: jax.Array, times: jax.Array, measured: jax.Array) -> jax.Array:
    """A decaying oscillation fitted by Levenberg-Marquardt."""

    def residuals(parameters: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
        times, measured = data
        height, rate = parameters
        return height * jnp.exp(-rate * times) - measured

    solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
    return optimistix.least_squares(residuals, solver, parameters, (times, measured)).value


def smallest(x0: jax.Array) -> jax.Array:
    """The minimum of Rosenbrock's function by BFGS."""

    def rosenbrock(x: jax.Array, _: None) -> jax.Array:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return optimistix.minimise(rosenbrock, optimistix.BFGS(rtol=1e-4, atol=1e-4), x0, throw=False).value


def _curve(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    times = jnp.linspace(0.0, 2.0, 12)
    noise = 0.01 * jax.random.normal(key, (12,))
    return jnp.array([1.0, 1.0]), times, 2.0 * jnp.exp(-1.5 * times) + noise


def _targets(key: jax.Array) -> tuple[jax.Array]:
    return (jax.random.uniform(key, (256,), minval=1.0, maxval=50.0),)


EXAMPLES = (
    Example(newton_root, lambda key: (jnp.zeros(3), jax.random.normal(key, (3,))), gradient=True),
    Example(bisection, _targets, gradient=True, batched=(0,)),
    Example(fitted_curve, _curve),
    Example(smallest, lambda key: (0.1 * jax.random.normal(key, (4,)),), allowed=1e-3),
)
