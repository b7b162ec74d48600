"""Graphs as lists of edges, each from a sender to a receiver."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import Algorithm, Arguments, f32, i32


def pagerank(weights: jax.Array, senders: jax.Array, receivers: jax.Array, *, nodes: int, steps: int) -> jax.Array:
    """How often a surfer is at each node who follows an edge, by weight, or begins anew anywhere."""
    leaving = jax.ops.segment_sum(weights, senders, nodes)
    share = weights / leaving[senders]
    stuck = leaving == 0

    def step(rank: jax.Array, _: None) -> tuple[jax.Array, None]:
        arrived = jax.ops.segment_sum(share * rank[senders], receivers, nodes)
        lost = jnp.where(stuck, rank, 0.0).sum()
        return 0.15 / nodes + 0.85 * (arrived + lost / nodes), None

    return lax.scan(step, jnp.full(nodes, 1.0 / nodes), None, length=steps)[0]


def bellman_ford(lengths: jax.Array, senders: jax.Array, receivers: jax.Array, *, nodes: int) -> jax.Array:
    """The shortest way from node 0 to each; until no edge makes one shorter."""

    def shorter(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        _, improved, rounds = state
        return improved & (rounds < nodes)

    def relax(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        distance, _, rounds = state
        through = distance[senders] + lengths
        nearer = distance.at[receivers].min(through)
        return nearer, (nearer < distance).any(), rounds + 1

    start = jnp.full(nodes, jnp.inf).at[0].set(0.0)
    return lax.while_loop(shorter, relax, (start, jnp.array(True), 0))[0]


def components(senders: jax.Array, receivers: jax.Array, *, nodes: int) -> jax.Array:
    """The least node that each one is connected with: edges hand on what they know, and pointers jump."""

    def changed(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return state[1]

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        label, _ = state
        least = jnp.minimum(label[senders], label[receivers])
        after = label.at[senders].min(least).at[receivers].min(least)
        after = after[after]
        return after, (after != label).any()

    return lax.while_loop(changed, step, (jnp.arange(nodes), jnp.array(True)))[0]


def _edges(rng: np.random.Generator) -> Arguments:
    return rng.integers(0, 9, 20, dtype=np.int32), rng.integers(0, 9, 20, dtype=np.int32)


def _weighted(rng: np.random.Generator) -> Arguments:
    return (0.1 + rng.random(20)).astype(np.float32), *_edges(rng)


ALGORITHMS = (
    Algorithm(
        pagerank,
        small=_weighted,
        realistic=(f32(16384), i32(16384), i32(16384)),
        few={"nodes": 9, "steps": 5},
        many={"nodes": 2048, "steps": 50},
        by=(0,),
        along=(0, None, None),
    ),
    Algorithm(
        bellman_ford,
        small=_weighted,
        realistic=(f32(4096), i32(4096), i32(4096)),
        few={"nodes": 9},
        many={"nodes": 1024},
        why_no_gradient="a `while` has none",
        along=(0, None, None),
    ),
    Algorithm(
        components,
        small=lambda rng: (rng.integers(0, 12, 8, dtype=np.int32), rng.integers(0, 12, 8, dtype=np.int32)),
        realistic=(i32(4096), i32(4096)),
        few={"nodes": 12},
        many={"nodes": 4096},
        why_no_gradient="integers have none",
        along=(0, 0),
    ),
)
