"""equinox: networks as trees, attention, and loops with gradients."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from examples.libraries.example import Example

CELL = eqx.nn.GRUCell(8, 16, key=jax.random.key(0))
WEIGHTS, STATIC = eqx.partition(CELL, eqx.is_array)
PROJECTIONS, HEADS = eqx.partition(eqx.nn.MultiheadAttention(4, 64, key=jax.random.key(1)), eqx.is_array)


def gru(weights: eqx.nn.GRUCell, sequences: jax.Array) -> jax.Array:
    """A GRU over a batch of sequences."""
    cell = eqx.combine(weights, STATIC)

    def run(sequence: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(16), sequence)[0]

    return jax.vmap(run)(sequences)


def collatz(starts: jax.Array) -> jax.Array:
    """equinox's while loop, each number with as many steps as it takes."""

    def steps(start: jax.Array) -> jax.Array:
        def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            n, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return eqx.internal.while_loop(lambda state: state[0] > 1, body, (start, 0), kind="lax")[1]

    return jax.vmap(steps)(starts)


def checkpointed_loop(x: jax.Array, rate: jax.Array) -> jax.Array:
    """equinox's checkpointed while loop, which has a gradient."""

    def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, steps = state
        return x + rate * jnp.sin(x), steps + 1

    x, _ = eqx.internal.while_loop(
        lambda state: state[1] < 20, body, (x, 0), max_steps=32, kind="checkpointed", checkpoints=4
    )
    return x


def bounded_loop(x: jax.Array, rate: jax.Array) -> jax.Array:
    """equinox's bounded while loop: scans of scans of branches."""

    def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, steps = state
        return x + rate * jnp.sin(x), steps + 1

    x, _ = eqx.internal.while_loop(lambda state: state[1] < 20, body, (x, 0), max_steps=32, kind="bounded")
    return x


def checked(x: jax.Array) -> jax.Array:
    """A check of the input that raises when a number is negative."""
    x = eqx.error_if(x, jnp.any(x < 0), "must not be negative")
    return jnp.sqrt(x) * jnp.exp(-x)


def attention(weights: eqx.nn.MultiheadAttention, sequences: jax.Array) -> jax.Array:
    """Causal self-attention over a batch of sequences."""
    heads = eqx.combine(weights, HEADS)
    time = sequences.shape[1]
    mask = jnp.tril(jnp.ones((time, time), bool))
    return jax.vmap(lambda sequence: heads(sequence, sequence, sequence, mask=mask))(sequences)


def _tokens(key: jax.Array) -> tuple[eqx.nn.MultiheadAttention, jax.Array]:
    return PROJECTIONS, jax.random.normal(key, (2, 40, 64))


def _sequences(key: jax.Array) -> tuple[eqx.nn.GRUCell, jax.Array]:
    return WEIGHTS, jax.random.normal(key, (32, 10, 8))


def _state(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.random.normal(key, (8,)), jnp.float32(0.1)


EXAMPLES = (
    Example(gru, _sequences, gradient=True, batched=(1,)),
    Example(attention, _tokens, gradient=True, batched=(1,)),
    Example(collatz, lambda key: (jax.random.randint(key, (64,), 1, 1000),), batched=(0,)),
    Example(checkpointed_loop, _state, gradient=True),
    Example(bounded_loop, _state, gradient=True),
    Example(checked, lambda key: (jax.random.uniform(key, (64,)),), gradient=True, batched=(0,)),
)
