"""jax-md: molecules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax_md import energy, simulate, space

from examples.libraries.example import Example


def lennard_jones(key: jax.Array, positions: jax.Array) -> jax.Array:
    """A hundred steps of Langevin dynamics of 16 particles that repel and attract."""
    displacement, shift = space.periodic(6.0)
    potential = energy.lennard_jones_pair(displacement)
    start, step = simulate.nvt_langevin(potential, shift, dt=1e-3, kT=0.1)
    state = start(key, positions)
    state = jax.lax.fori_loop(0, 100, lambda _, state: step(state), state)
    return state.position


def constant_energy(key: jax.Array, positions: jax.Array) -> jax.Array:
    """A hundred steps of springs in a box, at one energy."""
    displacement, shift = space.periodic(6.0)
    potential = energy.soft_sphere_pair(displacement)
    start, step = simulate.nve(potential, shift, dt=1e-3)
    state = start(key, positions, kT=0.1)
    return jax.lax.fori_loop(0, 100, lambda _, state: step(state), state).position


def _particles(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(4.0) * 1.5] * 2), -1).reshape(16, 2)
    return key, grid + 0.05 * jax.random.normal(key, (16, 2))


EXAMPLES = (Example(lennard_jones, _particles), Example(constant_energy, _particles))
