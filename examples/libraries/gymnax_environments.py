"""gymnax: rollouts of whole environments."""

from __future__ import annotations

from typing import Any

import gymnax
import jax

from examples.libraries.example import Example

STEPS = 50


def _rollout(name: str, key: jax.Array) -> jax.Array:
    """Random actions; an environment that ends begins anew."""
    environment, parameters = gymnax.make(name)
    observed, state = environment.reset(key, parameters)

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        observed, state = carry
        for_action, for_step = jax.random.split(key)
        action = environment.action_space(parameters).sample(for_action)
        observed, state, reward, *_ = environment.step(for_step, state, action, parameters)
        return (observed, state), reward

    _, rewards = jax.lax.scan(step, (observed, state), jax.random.split(key, STEPS))
    return rewards


def cart_pole(keys: jax.Array) -> jax.Array:
    """CartPole, 64 of them."""
    return jax.vmap(lambda key: _rollout("CartPole-v1", key))(keys)


def acrobot(keys: jax.Array) -> jax.Array:
    """Acrobot, 64 of them."""
    return jax.vmap(lambda key: _rollout("Acrobot-v1", key))(keys)


def pendulum(keys: jax.Array) -> jax.Array:
    """Pendulum, 64 of them."""
    return jax.vmap(lambda key: _rollout("Pendulum-v1", key))(keys)


def mountain_car(keys: jax.Array) -> jax.Array:
    """MountainCar, 64 of them."""
    return jax.vmap(lambda key: _rollout("MountainCar-v0", key))(keys)


def mountain_car_continuous(keys: jax.Array) -> jax.Array:
    """MountainCarContinuous, 64 of them."""
    return jax.vmap(lambda key: _rollout("MountainCarContinuous-v0", key))(keys)


def breakout(keys: jax.Array) -> jax.Array:
    """MinAtar's Breakout, 16 of them."""
    return jax.vmap(lambda key: _rollout("Breakout-MinAtar", key))(keys)


def _keys(key: jax.Array) -> tuple[jax.Array]:
    return (jax.random.split(key, 64),)


EXAMPLES = (
    Example(cart_pole, _keys, batched=(0,)),
    Example(acrobot, _keys, batched=(0,)),
    Example(pendulum, _keys, batched=(0,)),
    Example(mountain_car, _keys, batched=(0,)),
    Example(mountain_car_continuous, _keys, batched=(0,)),
    Example(breakout, lambda key: (jax.random.split(key, 16),), batched=(0,)),
)
