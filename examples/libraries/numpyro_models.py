"""numpyro: Hamiltonian Monte Carlo and variational inference for a model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model

from examples.libraries.example import Example

SIGMA = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(effects: jax.Array) -> None:
    """The hierarchical model of every tutorial."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        unit = numpyro.sample("unit", dist.Normal(0.0, 1.0))
        numpyro.sample("effects", dist.Normal(mean + spread * unit, SIGMA), obs=effects)


def nuts_chain(key: jax.Array, effects: jax.Array) -> dict[str, jax.Array]:
    """Ten transitions of NUTS, trees of up to 32 steps."""
    info = initialize_model(jax.random.key(1), eight_schools, model_args=(effects,))
    start, step = hmc(info.potential_fn, algo="NUTS")
    state = start(info.param_info, num_warmup=0, step_size=0.1, adapt_step_size=False, max_tree_depth=5, rng_key=key)

    def transition(state, _):
        state = step(state)
        return state, state.z

    return jax.lax.scan(transition, state, length=10)[1]


def svi(key: jax.Array, effects: jax.Array) -> jax.Array:
    """Fifty steps of stochastic variational inference."""
    guide = AutoNormal(eight_schools)
    inference = SVI(eight_schools, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    state = inference.init(key, effects)
    state, losses = jax.lax.scan(lambda state, _: inference.update(state, effects), state, length=50)
    return losses


def _data(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return key, jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


EXAMPLES = (Example(nuts_chain, _data), Example(svi, _data))
