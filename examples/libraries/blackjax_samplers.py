"""blackjax: samplers as pure functions, a chain as a scan."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp

from examples.libraries.example import Example


def log_density(x: jax.Array) -> jax.Array:
    """A banana in four dimensions."""
    return -0.5 * jnp.sum(x**2) - 0.5 * (x[1] - x[0] ** 2) ** 2


def _chain(sampler: Any, key: jax.Array, x0: jax.Array, length: int) -> jax.Array:
    def transition(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state, _ = sampler.step(key, state)
        return state, state.position

    return jax.lax.scan(transition, sampler.init(x0), jax.random.split(key, length))[1]


def hmc(key: jax.Array, x0: jax.Array) -> jax.Array:
    """Twenty transitions of HMC, ten leapfrog steps each."""
    sampler = blackjax.hmc(log_density, step_size=0.1, inverse_mass_matrix=jnp.ones(4), num_integration_steps=10)
    return _chain(sampler, key, x0, 20)


def nuts(key: jax.Array, x0: jax.Array) -> jax.Array:
    """Ten transitions of NUTS: trees built by nested while loops."""
    sampler = blackjax.nuts(log_density, step_size=0.3, inverse_mass_matrix=jnp.ones(4), max_num_doublings=5)
    return _chain(sampler, key, x0, 10)


def mala(key: jax.Array, x0: jax.Array) -> jax.Array:
    """An ensemble of chains of MALA."""
    sampler = blackjax.mala(log_density, step_size=0.1)
    keys = jax.random.split(key, x0.shape[0])
    return jax.vmap(lambda key, x: _chain(sampler, key, x, 20))(keys, x0)


EXAMPLES = (
    Example(hmc, lambda key: (key, jax.random.normal(key, (4,)))),
    Example(nuts, lambda key: (key, jax.random.normal(key, (4,)))),
    Example(mala, lambda key: (key, jax.random.normal(key, (64, 4))), batched=(1,)),
)
