"""Primitives that cut and glue arrays → slices and concatenations; collectives over a batch → reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, named, rewrite


def expand_structure(closed: Closed) -> Closed:
    """Cut with slices, glue with concatenations.

        b, c = split[axis=0 sizes=(2, 2)] a    →   b = slice[0:2] a;  c = slice[2:4] a
        b, c = unstack[axis=0] a               →   b = squeeze (slice[0:1] a);  c = squeeze (slice[1:2] a)
        c = stack[axis=0] a b                  →   c = concatenate (broadcast_in_dim a) (broadcast_in_dim b)
        b = dynamic_slice[sizes=(2,)] a 1      →   b = slice[1:3] a
        b = empty[shape=(4,)]                  →   b = broadcast_in_dim 0.0
        b:f32[6] = tile[reps=(2,)] a           →   b = reshape (broadcast_in_dim a)
        b = psum[axes=(0,)] a                  →   b = reduce_sum[axes=(0,)] a

    Left alone: a `dynamic_slice` at indices that the program computes, collectives over the axis of a mesh, and
    everything else.
    """
    return rewrite(closed, expand_structural, named({*STRUCTURAL, *BATCHED}))


def expand_structural(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """The rule, for passes that write such equations themselves."""
    if node.name in BATCHED:
        return _reduced(node)
    if node.name not in STRUCTURAL:
        return None
    return STRUCTURAL[node.name](node.args, node.params, node.out_avals)


def _reduced(node: Node) -> list[Value] | None:
    """Where a `vmap` has turned the name of its axis into a dimension."""
    axes = node.params["axes"]
    if node.params["axis_index_groups"] is not None or not all(isinstance(axis, int) for axis in axes):
        return None
    return [BATCHED[node.name](arg, axes) for arg in node.args]


def _split(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value]:
    sizes = [int(size) for size in params["sizes"]]
    stops = list(accumulate(sizes))
    return [lax.slice_in_dim(args[0], stop - size, stop, axis=params["axis"]) for size, stop in zip(sizes, stops)]


def _unstack(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value]:
    return [lax.index_in_dim(args[0], i, params["axis"], keepdims=False) for i in range(len(outs))]


def _stack(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value]:
    return [lax.concatenate([lax.expand_dims(arg, (params["axis"],)) for arg in args], params["axis"])]


def _dynamic_slice(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value] | None:
    starts = [constant(start) for start in args[1:]]
    sizes = params["slice_sizes"]
    if any(start is None for start in starts):
        return None
    shape = jnp.shape(args[0])
    firsts = [
        min(max(int(start), 0), whole - size) for start, whole, size in zip(starts, shape, sizes) if start is not None
    ]
    return [lax.slice(args[0], firsts, [first + size for first, size in zip(firsts, sizes)])]


def _empty(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value]:
    return [lax.full(outs[0].shape, 0, outs[0].dtype)]


def _tile(args: Sequence[Value], params: Mapping[str, Any], outs: Sequence[Any]) -> list[Value]:
    sizes = [size for pair in zip(map(int, params["reps"]), jnp.shape(args[0])) for size in pair]
    return [lax.reshape(lax.broadcast_in_dim(args[0], sizes, range(1, len(sizes), 2)), outs[0].shape)]


STRUCTURAL: Mapping[str, Callable[[Sequence[Value], Mapping[str, Any], Sequence[Any]], list[Value] | None]] = {
    "split": _split,
    "unstack": _unstack,
    "stack": _stack,
    "dynamic_slice": _dynamic_slice,
    "empty": _empty,
    "empty2": _empty,
    "tile": _tile,
}
BATCHED: Mapping[str, Callable[[Value, Sequence[int]], Value]] = {
    "psum": lax.reduce_sum,
    "pmax": lax.reduce_max,
    "pmin": lax.reduce_min,
}
