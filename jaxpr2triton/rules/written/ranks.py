"""Running sums and sorts of short axes, in which every element looks at all others.

That is n comparisons for each element instead of log n steps one after the other, but it is one reduction of a tile,
and the tile stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.reductions import identity_of

Array = jax.Array


def _pairs(x: Array, axis: int) -> tuple[Array, Array, Array, Array]:
    """Each element along the axis beside each other one, in a new axis before it; and both their places."""
    shape = (*x.shape[:axis], x.shape[axis], *x.shape[axis:])
    outer = [d for d in range(len(shape)) if d != axis + 1]  # runs along the new axis
    inner = [d for d in range(len(shape)) if d != axis]
    there, here = (lax.broadcasted_iota(np.int32, shape, d) for d in (axis, axis + 1))
    return lax.broadcast_in_dim(x, shape, outer), lax.broadcast_in_dim(x, shape, inner), there, here


def _running(name: str, combine: Callable[[Array, tuple[int, ...]], Array]) -> Callable[..., Array]:
    def running(x: Array, *, axis: int, reverse: bool) -> Array:
        other, _, there, here = _pairs(x, axis)
        taken = there >= here if reverse else there <= here
        rest = jnp.asarray(identity_of(REDUCTIONS[name], x.dtype), x.dtype)
        return combine(lax.select(taken, other, lax.broadcast(rest, other.shape)), (axis,))

    return running


def cumlogsumexp(x: Array, *, axis: int, reverse: bool) -> Array:
    """Against the running maximum; sums of nothing but -inf stay -inf."""
    top = _TABLE["cummax"](x, axis=axis, reverse=reverse)
    top = lax.select(lax.is_finite(top), top, lax.full_like(top, 0))
    other, _, there, here = _pairs(x, axis)
    shift = _pairs(top, axis)[1]
    taken = there >= here if reverse else there <= here
    parts = lax.select(taken, lax.exp(other - shift), lax.full_like(other, 0))
    return lax.log(lax.reduce_sum(parts, (axis,))) + top


def _comes_before(one: Array, other: Array) -> Array:
    """In JAX's order of floats, -0.0 is 0.0 and all NaNs come last and are equal."""
    if not is_float(one.dtype):
        return one < other
    return (one < other) | ((other != other) & (one == one))


def sort(*operands: Array, dimension: int, is_stable: bool, num_keys: int) -> list[Array]:
    """The place of an element is the number of those before it, and each place looks for its element."""
    size, axis = operands[0].shape[dimension], dimension
    _, _, there, here = _pairs(operands[0], axis)
    first = there < here
    for key in reversed(operands[:num_keys]):
        other, own, _, _ = _pairs(key, axis)
        first = _comes_before(other, own) | (~_comes_before(own, other) & first)
    rank = lax.reduce_sum(lax.convert_element_type(first, np.int32), (axis,))
    # the place runs along the new axis, the element along the one that is summed
    shape = (*rank.shape[:axis], size, *rank.shape[axis:])
    inner = [d for d in range(len(shape)) if d != axis]
    chosen = lax.broadcast_in_dim(rank, shape, inner) == lax.broadcasted_iota(np.int32, shape, axis)
    return [selected(chosen, lax.broadcast_in_dim(x, shape, inner), (axis + 1,)) for x in operands]


def selected(chosen: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """The one chosen element along the axes, bit for bit; zero where none is chosen."""
    dtype = x.dtype
    if is_float(dtype):
        x = lax.bitcast_convert_type(x, np.dtype(f"uint{8 * dtype.itemsize}"))
    if is_bool(dtype):
        x = lax.convert_element_type(x, np.int32)
    x = lax.reduce_sum(lax.select(chosen, x, lax.full_like(x, 0)), axes)
    if is_bool(dtype):
        return x != 0
    return lax.bitcast_convert_type(x, dtype) if is_float(dtype) else x


_TABLE: Mapping[str, Callable[..., Any]] = {
    "cumsum": _running("reduce_sum", lax.reduce_sum),
    "cumprod": _running("reduce_prod", lax.reduce_prod),
    "cummax": _running("reduce_max", lax.reduce_max),
    "cummin": _running("reduce_min", lax.reduce_min),
}
TABLE: Mapping[str, Callable[..., Any]] = {**_TABLE, "cumlogsumexp": cumlogsumexp, "sort": sort}


def is_short(name: str, shape: tuple[int, ...], params: Mapping[str, Any]) -> bool:
    """True if the axis is so short that looking at all pairs is no matter."""
    size = shape[params["dimension" if name == "sort" else "axis"]]
    return size <= policy.COMMON.few and size * math.prod(shape) <= policy.COMMON.pairs
