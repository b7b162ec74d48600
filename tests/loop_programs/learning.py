"""Reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loop_programs.base import CHAOTIC, ONE, RANDOM, LoopProgram, keys
from tests.programs import Arguments, Rng, floats, join


def gae(rewards: Any, values: Any, last_value: Any, done: Any) -> Any:
    def step(carry: Any, now: Any) -> Any:
        advantage, next_value = carry
        reward, value, done = now
        delta = reward + 0.99 * next_value * (1 - done) - value
        advantage = delta + 0.99 * 0.95 * (1 - done) * advantage
        return (advantage, value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    _, advantages = lax.scan(step, start, (rewards, values, done), reverse=True)
    return advantages, advantages + values


def lambda_returns(rewards: Any, values: Any, last_value: Any, discounts: Any) -> Any:
    def step(following: Any, now: Any) -> Any:
        reward, value, discount = now
        result = reward + discount * (0.05 * value + 0.95 * following)
        return result, result

    return lax.scan(step, last_value, (rewards, values, discounts), reverse=True)[1]


def rollouts(steps: int, environments: int) -> Arguments:
    shape = steps, environments

    def done(rng: Rng) -> tuple[Any, ...]:
        return ((rng.random(shape) < 0.1).astype(np.float32),)

    return join(floats(shape, shape, (environments,)), done)


def cart_pole(steps: int) -> Callable[..., Any]:
    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def move(state: Any, force: Any) -> Any:
        x, v, theta, omega = state
        cos, sin = jnp.cos(theta), jnp.sin(theta)
        push = (force + 0.05 * omega**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        speed_up = push - 0.05 * turn * cos / 1.1
        return jnp.stack([x + 0.02 * v, v + 0.02 * speed_up, theta + 0.02 * omega, omega + 0.02 * turn])

    def play(key: Any, policy: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, state, score = carry
            key, action_key, reset_key = jax.random.split(key, 3)
            right = jax.random.bernoulli(action_key, jax.nn.sigmoid(state @ policy))
            state = move(state, jnp.where(right, 10.0, -10.0))
            failed = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)
            state = jnp.where(failed, reset(reset_key), state)
            return (key, state, score + 1.0 - failed), failed

        first, key = jax.random.split(key)
        (_, state, score), failures = lax.scan(step, (key, reset(first), 0.0), None, length=steps)
        return state, score, failures

    return jax.vmap(play, in_axes=(0, None))


PROGRAMS: tuple[LoopProgram, ...] = (
    LoopProgram("gae", gae, rollouts(6, 9), (0, 1, 2), ONE, rollouts(128, 4096)),
    LoopProgram("lambda_returns", lambda_returns, rollouts(6, 9), (0, 1, 2, 3), ONE, rollouts(128, 4096)),
    LoopProgram(
        *("cart_pole", cart_pole(3), join(keys(4), floats((4,))), None, RANDOM | CHAOTIC),
        bench_args=join(keys(2000), floats((4,))),
        full=cart_pole(500),
    ),
)
