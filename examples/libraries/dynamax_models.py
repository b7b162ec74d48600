"""dynamax: state-space models."""

from __future__ import annotations

import jax
from dynamax.hidden_markov_model import GaussianHMM
from dynamax.linear_gaussian_ssm import LinearGaussianSSM

from examples.libraries.example import Example

LINEAR = LinearGaussianSSM(state_dim=4, emission_dim=2)
LINEAR_PARAMETERS, _ = LINEAR.initialize(jax.random.key(0))
HIDDEN = GaussianHMM(num_states=3, emission_dim=2)
HIDDEN_PARAMETERS, _ = HIDDEN.initialize(jax.random.key(0))


def kalman_filter(emissions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The filtered means and the likelihood of a series."""
    posterior = LINEAR.filter(LINEAR_PARAMETERS, emissions)
    return posterior.filtered_means, posterior.marginal_loglik


def kalman_smoother(emissions: jax.Array) -> jax.Array:
    """The smoothed means: a loop forward and a loop back."""
    return LINEAR.smoother(LINEAR_PARAMETERS, emissions).smoothed_means


def hidden_markov(emissions: jax.Array) -> jax.Array:
    """The smoothed probabilities of three hidden states."""
    return HIDDEN.smoother(HIDDEN_PARAMETERS, emissions).smoothed_probs


def _emissions(key: jax.Array) -> tuple[jax.Array]:
    return (jax.random.normal(key, (50, 2)),)


EXAMPLES = (
    Example(kalman_filter, _emissions, gradient=True),
    # with the parameters in float64 the gradient of jax.jit is 7.5e-5 off, and ours 1.3e-4
    Example(kalman_smoother, _emissions, gradient=True, allowed=3e-4),
    Example(hidden_markov, _emissions, gradient=True),
)
