"""brax: rigid bodies."""

from __future__ import annotations

import jax
from brax import envs

from examples.libraries.example import Example

PENDULUM = envs.get_environment("inverted_pendulum", backend="positional")


def one_step(key: jax.Array, action: jax.Array) -> jax.Array:
    """A reset and one step of the inverted pendulum."""
    return PENDULUM.step(PENDULUM.reset(key), action).obs


def rollout(key: jax.Array, actions: jax.Array) -> jax.Array:
    """Ten steps in a scan."""

    def step(state: envs.State, action: jax.Array) -> tuple[envs.State, jax.Array]:
        state = PENDULUM.step(state, action)
        return state, state.obs

    return jax.lax.scan(step, PENDULUM.reset(key), actions)[1]


EXAMPLES = (
    Example(one_step, lambda key: (key, jax.random.uniform(key, (1,)))),
    Example(rollout, lambda key: (key, jax.random.uniform(key, (10, 1)))),
)
