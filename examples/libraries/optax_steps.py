"""optax: optimisers over a tree of parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from examples.libraries.example import Example

Tree = dict[str, jax.Array]


def adamw_step(parameters: Tree, gradients: Tree) -> Tree:
    """Clipping, AdamW and a schedule: one step on four arrays."""
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, 100)))
    updates, _ = optimiser.update(gradients, optimiser.init(parameters), parameters)
    return optax.apply_updates(parameters, updates)


def fitted_by_adam(parameters: jax.Array, xs: jax.Array, ys: jax.Array) -> jax.Array:
    """A whole fit: 100 steps of Adam in a scan."""
    optimiser = optax.adam(1e-2)

    def loss(parameters: jax.Array) -> jax.Array:
        return jnp.mean((parameters[0] * jnp.sin(parameters[1] * xs + parameters[2]) - ys) ** 2)

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        parameters, state = carry
        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state), value

    (parameters, _), losses = jax.lax.scan(step, (parameters, optimiser.init(parameters)), length=100)
    return parameters


def lbfgs(x0: jax.Array) -> jax.Array:
    """Ten steps of L-BFGS, with its line search."""

    def rosenbrock(x: jax.Array) -> jax.Array:
        return jnp.sum(10.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    optimiser = optax.lbfgs(memory_size=4)
    value_and_grad = optax.value_and_grad_from_state(rosenbrock)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        x, state = carry
        value, gradient = value_and_grad(x, state=state)
        updates, state = optimiser.update(gradient, state, x, value=value, grad=gradient, value_fn=rosenbrock)
        return (optax.apply_updates(x, updates), state), None

    (x, _), _ = jax.lax.scan(step, (x0, optimiser.init(x0)), length=10)
    return x


def _trees(key: jax.Array) -> tuple[Tree, Tree]:
    def tree(key: jax.Array) -> Tree:
        shapes = {"in": (64, 32), "in_bias": (32,), "out": (32, 8), "out_bias": (8,)}
        keys = jax.random.split(key, len(shapes))
        return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, shapes.items())}

    first, second = jax.random.split(key)
    return tree(first), tree(second)


def _wave(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    xs = jax.random.uniform(key, (128,), maxval=6.0)
    return jnp.array([1.0, 1.0, 0.0]), xs, 2.0 * jnp.sin(1.2 * xs + 0.3)


EXAMPLES = (
    Example(adamw_step, _trees),
    Example(fitted_by_adam, _wave, gradient=True, batched=(1, 2)),
    Example(lbfgs, lambda key: (0.1 * jax.random.normal(key, (6,)),)),
)
