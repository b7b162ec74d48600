"""Two index operations of one kind → one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite


def compose_indices(closed: Closed) -> Closed:
    """Read the first operand at once.

        b = transpose[permutation=(1, 0)] a;  c = transpose[permutation=(1, 0)] b   →   c = a
        b:f32[12] = reshape a;  c:f32[3,4] = reshape b                              →   c = reshape a
        b:f32[3,1] = broadcast_in_dim a;  c:f32[3,4] = broadcast_in_dim b           →   c = broadcast_in_dim a
        b = slice[2:8] a;  c = slice[1:3] b                                         →   c = slice[3:5] a
        b = rev[dimensions=(0,)] a;  c = rev[dimensions=(0,)] b                     →   c = a
        b:f32[1,40] = reshape a;  c:f32[40] = squeeze b                             →   c = a

    Left alone: pairs of different kinds; a kernel composes the indices of those for nothing.
    """
    return rewrite(closed, _compose, named(COMPOSED))


def _compose(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    inner = rewriter.maker(node.args[0])
    if inner is None or inner.name not in _PARTNERS.get(node.name, (node.name,)):
        return None
    if node.params.get("sharding") is not None or inner.params.get("sharding") is not None:
        return None
    result = COMPOSED[node.name](node, inner, rewriter)
    return None if result is None else [result]


def _transpose(node: Node, inner: Node, rewriter: Rewriter) -> Value:
    first, second = inner.params["permutation"], node.params["permutation"]
    permutation = tuple(first[axis] for axis in second)
    if permutation == tuple(range(len(permutation))):
        return inner.args[0]
    return rewriter.write(node, inner.args[0], permutation=permutation)


def _reshape(node: Node, inner: Node, rewriter: Rewriter) -> Value | None:
    if node.params["dimensions"] is not None or (inner.name == "reshape" and inner.params["dimensions"] is not None):
        return None
    if jnp.shape(inner.args[0]) == tuple(node.params["new_sizes"]):
        return inner.args[0]
    return rewriter.write(node, inner.args[0])


def _broadcast(node: Node, inner: Node, rewriter: Rewriter) -> Value | None:
    if len(node.args) > 1 or len(inner.args) > 1:  # dynamic shapes
        return None
    places = tuple(node.params["broadcast_dimensions"][axis] for axis in inner.params["broadcast_dimensions"])
    return rewriter.write(node, inner.args[0], broadcast_dimensions=places)


def _rev(node: Node, inner: Node, rewriter: Rewriter) -> Value:
    once = tuple(sorted(set(node.params["dimensions"]) ^ set(inner.params["dimensions"])))
    return rewriter.write(node, inner.args[0], dimensions=once) if once else inner.args[0]


def _slice(node: Node, inner: Node, rewriter: Rewriter) -> Value:
    rank = len(node.params["start_indices"])
    inner_steps = inner.params["strides"] or (1,) * rank
    steps = node.params["strides"] or (1,) * rank
    starts, limits, strides = [], [], []
    for axis in range(rank):
        start, limit = node.params["start_indices"][axis], node.params["limit_indices"][axis]
        count = max(0, -(-(limit - start) // steps[axis]))
        stride = inner_steps[axis] * steps[axis]
        first = inner.params["start_indices"][axis] + start * inner_steps[axis]
        starts.append(first)
        limits.append(first + (count - 1) * stride + 1 if count else first)
        strides.append(stride)
    plain = all(stride == 1 for stride in strides)
    return rewriter.write(
        node,
        inner.args[0],
        start_indices=tuple(starts),
        limit_indices=tuple(limits),
        strides=None if plain else tuple(strides),
    )


def _squeeze(node: Node, inner: Node, rewriter: Rewriter) -> Value | None:
    if inner.name == "reshape":
        shape = node.out_avals[0].shape
        if inner.params["dimensions"] is not None:
            return None
        return (
            inner.args[0]
            if jnp.shape(inner.args[0]) == shape
            else rewriter.write(inner, inner.args[0], new_sizes=shape)
        )
    gone = set(inner.params["dimensions"])
    left = [axis for axis in range(jnp.ndim(inner.args[0])) if axis not in gone]
    dimensions = tuple(sorted(gone | {left[axis] for axis in node.params["dimensions"]}))
    return rewriter.write(node, inner.args[0], dimensions=dimensions)


_PARTNERS: Mapping[str, tuple[str, ...]] = {"reshape": ("reshape", "squeeze"), "squeeze": ("squeeze", "reshape")}
COMPOSED: Mapping[str, Callable[[Node, Node, Rewriter], Value | None]] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "rev": _rev,
    "slice": _slice,
    "squeeze": _squeeze,
}
