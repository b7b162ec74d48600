"""Sorting and routing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import Algorithm, Arguments, f32


def bitonic(keys: jax.Array) -> jax.Array:
    """A row in order, by a network of compare and exchange: of 2^n keys, n (n + 1) / 2 rounds."""
    place = jnp.arange(keys.size)
    bits = keys.size.bit_length() - 1
    rounds = [(block, distance) for block in range(1, bits + 1) for distance in reversed(range(block))]

    def exchange(keys: jax.Array, turn: jax.Array) -> tuple[jax.Array, None]:
        block, distance = turn
        partner = place ^ (1 << distance)
        upwards = (place >> block) % 2 == 0
        other = keys[partner]
        small = (place < partner) == upwards
        return jnp.where(small, jnp.minimum(keys, other), jnp.maximum(keys, other)), None

    return lax.scan(exchange, keys, jnp.array(rounds))[0]


def radix_sort(keys: jax.Array) -> jax.Array:
    """A row of unsigned numbers in order, four bits at a time, beginning with the last ones."""
    digits = jnp.arange(16, dtype=keys.dtype)

    def by_digit(keys: jax.Array, shift: jax.Array) -> tuple[jax.Array, None]:
        digit = (keys >> shift) & 15
        has = (digit[:, None] == digits).astype(jnp.int32)
        count = has.sum(0)
        first = jnp.cumsum(count) - count  # the place of the first key with each digit
        before = jnp.cumsum(has, axis=0) - has  # how many with that digit come before each key
        place = first[digit] + jnp.take_along_axis(before, digit[:, None].astype(jnp.int32), axis=1)[:, 0]
        return jnp.zeros_like(keys).at[place].set(keys), None

    return lax.scan(by_digit, keys, jnp.arange(0, 32, 4, dtype=keys.dtype))[0]


def experts(x: jax.Array, router: jax.Array, up: jax.Array, down: jax.Array, *, capacity: int) -> jax.Array:
    """A mixture of experts: each token goes to two of them, and is dropped where an expert has no more room."""
    tokens, many = len(x), router.shape[1]
    weight, expert = lax.top_k(jax.nn.softmax(x @ router), 2)
    weight = weight / weight.sum(-1, keepdims=True)
    chosen = jax.nn.one_hot(expert.T.reshape(-1), many, dtype=jnp.int32)  # all first choices before all second ones
    slot = (jnp.cumsum(chosen, axis=0) * chosen).sum(-1) - 1
    slot = slot.reshape(2, tokens).T

    inputs = jnp.zeros((many, capacity, x.shape[1])).at[expert, slot].set(x[:, None], mode="drop")
    hidden = jax.nn.gelu(jnp.einsum("ecd,edh->ech", inputs, up))
    outputs = jnp.einsum("ech,ehd->ecd", hidden, down)

    back = outputs.at[expert, slot].get(mode="fill", fill_value=0.0)
    return (weight[:, :, None] * back).sum(1)


def _tokens(rng: np.random.Generator) -> Arguments:
    shapes = ((12, 8), (8, 4), (4, 8, 16), (4, 16, 8))
    return tuple(rng.normal(size=shape).astype(np.float32) / 2 for shape in shapes)


ALGORITHMS = (
    Algorithm(
        bitonic,
        small=lambda rng: (rng.normal(size=16).astype(np.float32),),
        realistic=(f32(1024),),
        by=(0,),
        along=(0,),
        lanes=1024,
    ),
    Algorithm(
        radix_sort,
        small=lambda rng: (rng.integers(0, 2**32, 24, dtype=np.uint32),),
        realistic=(jax.ShapeDtypeStruct((1024,), np.uint32),),
        why_no_gradient="integers have none",
        along=(0,),
        lanes=1024,
    ),
    Algorithm(
        experts,
        small=_tokens,
        realistic=(f32(4096, 512), f32(512, 8), f32(8, 512, 1024), f32(8, 1024, 512)),
        few={"capacity": 5},
        many={"capacity": 1280},
        by=(0, 1, 2, 3),
        along=(0, None, None, None),
    ),
)
