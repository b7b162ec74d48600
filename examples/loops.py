"""Five loops of five sorts; docs/loops.md shows what becomes of each.

jaxpr2triton dump examples/loops.py:returns 'f32[1000,64]' 'bool[1000,64]'
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def returns(rewards: jax.Array, ends: jax.Array) -> jax.Array:
    """The discounted sum of all later rewards of an episode, at each step of some environments."""

    def step(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, end = now
        total = reward + jnp.where(end, 0.0, 0.99 * later)
        return total, total

    return lax.scan(step, jnp.zeros_like(rewards[0]), (rewards, ends), reverse=True)[1]


def resonator(signal: jax.Array) -> jax.Array:
    """A filter of second order: what comes out now depends on what came out in the two steps before."""

    def step(before: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        last, last_but_one = before
        y = x + 1.6 * last - 0.8 * last_but_one
        return (y, last), y

    return lax.scan(step, (0.0, 0.0), signal)[1]


def elman(u: jax.Array, h: jax.Array, xs: jax.Array) -> jax.Array:
    """A recurrent network: the last state of each row."""
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ u), None), h, xs)[0]


def orbits(place: jax.Array, speed: jax.Array) -> jax.Array:
    """Planets around one sun, by leapfrog: half a kick, a step, and half a kick at the new place."""

    def pull(place: jax.Array) -> jax.Array:
        return -place / (place**2).sum(-1, keepdims=True) ** 1.5

    def step(state: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        place, speed = state
        half = speed + 0.005 * pull(place)
        place = place + 0.01 * half
        return (place, half + 0.005 * pull(place)), None

    return lax.scan(step, (place, speed), None, length=1000)[0][0]


def settled(x: jax.Array) -> jax.Array:
    """The number whose cosine it is, from each start: each goes on until it moves no more."""
    return jax.vmap(lambda x: lax.while_loop(lambda x: jnp.abs(jnp.cos(x) - x) > 1e-6, jnp.cos, x))(x)
