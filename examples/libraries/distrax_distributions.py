"""distrax: distributions and bijectors."""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp

from examples.libraries.example import Example


def mixture(x: jax.Array, logits: jax.Array, means: jax.Array) -> jax.Array:
    """The log density of a mixture of normals."""
    components = distrax.Normal(means, jnp.ones_like(means))
    return distrax.MixtureSameFamily(distrax.Categorical(logits), components).log_prob(x)


def spline_flow(x: jax.Array, parameters: jax.Array) -> jax.Array:
    """A rational quadratic spline and its log determinant."""
    y, logdet = distrax.RationalQuadraticSpline(parameters, -3.0, 3.0).forward_and_log_det(x)
    return y + logdet


def hidden_markov(observed: jax.Array, logits: jax.Array) -> jax.Array:
    """The likelihood of a series under a hidden Markov model."""
    model = distrax.HMM(
        distrax.Categorical(jnp.zeros(3)),
        distrax.Categorical(logits),
        distrax.Normal(jnp.array([-1.0, 0.0, 1.0]), jnp.ones(3)),
    )
    _, _, _, likelihood = model.forward_backward(observed)
    return likelihood


EXAMPLES = (
    Example(
        mixture,
        lambda key: (jax.random.normal(key, (128,)), jnp.zeros(5), jnp.linspace(-1.0, 1.0, 5)),
        gradient=True,
        batched=(0,),
    ),
    Example(
        spline_flow,
        lambda key: (jax.random.normal(key, (64,)), 0.3 * jax.random.normal(key, (64, 3 * 8 + 1))),
        gradient=True,
        batched=(0, 1),
    ),
    Example(
        hidden_markov, lambda key: (jax.random.normal(key, (40,)), jax.random.normal(key, (3, 3))), gradient=True
    ),
)
