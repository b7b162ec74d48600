"""A family of lines: sums along an axis that depend on a maximum or a mean along it, for some of them in two ways."""

from __future__ import annotations

from tests.drawn.generator import Draft

LINES = (
    "jax.nn.logsumexp({0}, {1}, keepdims=True)",
    "-jax.nn.logsumexp(-{0} * 2, {1}, keepdims=True)",
    "jnp.sum(jax.nn.softmax({0}, {1}) * jnp.cos({0}), {1}, keepdims=True, dtype={0}.dtype)",
    "jnp.sum(jnp.exp(jnp.min({0}, {1}, keepdims=True) - {0}), {1}, keepdims=True, dtype={0}.dtype)",
    "jnp.sum(jnp.exp({0} - jnp.max({0}, {1}, keepdims=True)) / 3, {1}, keepdims=True, dtype={0}.dtype)",
    "jax.nn.logsumexp(jnp.where({0} > -0.5, {0}, -jnp.inf), {1}, keepdims=True)",
    "jnp.sum(jnp.exp(jnp.sin({0}) - jnp.max({0}, {1}, keepdims=True)), {1}, keepdims=True, dtype={0}.dtype)",
    "jnp.var({0}, {1}, keepdims=True)",
    "jnp.sum(({0} - jnp.mean({0}, {1}, keepdims=True)) * jnp.sin({0}), {1}, keepdims=True, dtype={0}.dtype)",
    "({0} - jnp.mean({0}, {1}, keepdims=True)) * lax.rsqrt(jnp.var({0}, {1}, keepdims=True) + 0.5)",
)


def streamed(draft: Draft) -> None:
    x = draft.float_value(lambda value: value.rank > 0 and value.size > 0)
    if x.rank and x.size:
        draft.add(draft.pick(LINES).format(x.name, draft.axis(x)), x)
