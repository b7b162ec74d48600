"""Sequences: how alike two are, what is hidden behind one, and the order of all its ends."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import Algorithm, Arguments, f32, i32


def smith_waterman(scores: jax.Array, opened: jax.Array, extended: jax.Array) -> jax.Array:
    """How well some parts of two sequences match at best, with gaps (Gotoh): a diagonal of the table at a time."""
    rows, columns = scores.shape
    row = jnp.arange(rows)

    def down(diagonal: jax.Array, outside: float) -> jax.Array:
        """What stands in the row above."""
        return jnp.concatenate([jnp.full(1, outside), diagonal[:-1]])

    def step(carry: tuple[jax.Array, ...], number: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        last_but_one, last, across, along, best = carry
        column = number - row
        inside = (column >= 0) & (column < columns)
        score = scores[row, jnp.clip(column, 0, columns - 1)]
        across = jnp.maximum(last - opened, across - extended)
        along = jnp.maximum(down(last, 0.0) - opened, down(along, -jnp.inf) - extended)
        matched = jnp.maximum(down(last_but_one, 0.0) + score, 0.0)
        now = jnp.where(inside, jnp.maximum(matched, jnp.maximum(across, along)), 0.0)
        return (last, now, across, along, jnp.maximum(best, now)), None

    zeros, never = jnp.zeros(rows), jnp.full(rows, -jnp.inf)
    start = (zeros, zeros, never, never, zeros)
    return lax.scan(step, start, jnp.arange(rows + columns - 1))[0][-1].max()


def viterbi(start: jax.Array, moves: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The likeliest path of hidden states, and how likely it is: forward for the best, and back along it."""

    def forward(best: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        through = best[:, None] + moves
        return through.max(0) + now, through.argmax(0)

    def back(state: jax.Array, came_from: jax.Array) -> tuple[jax.Array, jax.Array]:
        return came_from[state], state

    best, pointers = lax.scan(forward, start + seen[0], seen[1:])
    first, path = lax.scan(back, best.argmax(), pointers, reverse=True)
    return jnp.concatenate([first[None], path]), best.max()


def suffix_array(text: jax.Array) -> jax.Array:
    """Where the suffixes of a text begin, in the order of a dictionary: ranks by 1, 2, 4, … of their letters."""
    size = len(text)
    place = jnp.arange(size)

    def double(rank: jax.Array, length: jax.Array) -> tuple[jax.Array, None]:
        behind = place + length
        second = jnp.where(behind < size, rank[jnp.minimum(behind, size - 1)], -1)
        order = jnp.lexsort((second, rank))
        first, second = rank[order], second[order]
        new = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        ranks = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(new, dtype=jnp.int32)])
        return jnp.zeros_like(rank).at[order].set(ranks), None

    lengths = 2 ** jnp.arange((size - 1).bit_length())
    rank = lax.scan(double, text, lengths)[0]
    return jnp.zeros_like(rank).at[rank].set(place)


def _aligned(rng: np.random.Generator) -> Arguments:
    return rng.normal(size=(5, 7)).astype(np.float32), np.float32(0.4), np.float32(0.1)


def _hidden(rng: np.random.Generator) -> Arguments:
    return tuple(np.log(rng.random(shape, dtype=np.float32)) for shape in ((4,), (4, 4), (7, 4)))


ALGORITHMS = (
    Algorithm(
        smith_waterman,
        small=_aligned,
        realistic=(f32(256, 256), f32(), f32()),
        by=(0, 1, 2),
        along=(0, None, None),
        lanes=512,
    ),
    Algorithm(
        viterbi,
        small=_hidden,
        realistic=(f32(32), f32(32, 32), f32(512, 32)),
        by=(0, 1, 2),
        along=(None, None, 0),
        lanes=256,
    ),
    Algorithm(
        suffix_array,
        small=lambda rng: (rng.integers(0, 3, 13, dtype=np.int32),),
        realistic=(i32(1024),),
        why_no_gradient="integers have none",
        along=(0,),
        lanes=256,
    ),
)
