"""Gathers and scatters of which each lane has a place along a dimension of its own → batches.

x[arange(n), i]:   gather[start_index_map=(0, 1)] x [[0, i[0]], [1, i[1]], …]
    →   gather[start_index_map=(1,) operand_batching_dims=(0,) start_indices_batching_dims=(0,)] x [[i[0]], [i[1]], …]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.normalize.arrays.affine_windows import Places
from jaxpr2triton.normalize.numbers.static_values import static_array
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant

# What these have of their own: dimensions that are gone, the operand's of each component, and the indices' of batches.
_GATHERED = "collapsed_slice_dims", "start_index_map", "start_indices_batching_dims"
_SCATTERED = "inserted_window_dims", "scatter_dims_to_operand_dims", "scatter_indices_batching_dims"


def with_lanes(node: Node, places: Places, rewriter: Rewriter) -> Node | None:
    """The same with a dimension that is counted as a batch; None if there is none, or all places are known."""
    if len(places.indexed) < 2 or static_array(node.args[1], rewriter) is not None:
        return None
    for component, d in enumerate(places.indexed):
        slot = counted_along(_component(node.args[1], component, rewriter), rewriter) if d in places.dropped else None
        if slot in places.free and places.lead[slot] == places.shape[d]:
            return _batched(node, component, d, slot, rewriter)
    return None


def counted_along(value: Value, rewriter: Rewriter) -> int | None:
    """The dimension along which the elements of an array are 0, 1, 2 …, and the same along all others."""
    moves: list[Node] = []
    while (maker := rewriter.maker(value)) is not None and maker.name in _MOVED:
        if maker.name == "select_n" and not _is_never(maker.args[0], maker.args[1], rewriter):
            return None
        moves.append(maker)
        value = maker.args[1 if maker.name == "select_n" else 0]
    dim = _counted(value, rewriter)
    for maker in reversed(moves):
        dim = None if dim is None else _MOVED[maker.name](maker, dim)
    return dim


def _counted(value: Value, rewriter: Rewriter) -> int | None:
    maker = rewriter.maker(value)
    if maker is not None and maker.name == "iota":
        dim = int(maker.params["dimension"])
        return dim if _reaches(maker.params["dtype"], maker.params["shape"][dim]) else None
    known = static_array(value, rewriter)
    if known is None:
        return None
    return next((d for d in range(known.ndim) if np.array_equal(known, _iota(known, d))), None)


def _iota(like: np.ndarray, dim: int) -> np.ndarray:
    along = np.arange(like.shape[dim])
    return np.broadcast_to(along.reshape([-1 if d == dim else 1 for d in range(like.ndim)]), like.shape)


def _reaches(dtype: Any, size: int) -> bool:
    """Whether a type has all numbers below the size, each for itself."""
    return bool(jnp.issubdtype(dtype, jnp.integer)) and size - 1 <= jnp.iinfo(dtype).max


def _converted(maker: Node, dim: int) -> int | None:
    return dim if _reaches(maker.params["new_dtype"], jnp.shape(maker.args[0])[dim]) else None


def _broadcast(maker: Node, dim: int) -> int | None:
    there = int(maker.params["broadcast_dimensions"][dim])
    return there if maker.params["shape"][there] == jnp.shape(maker.args[0])[dim] else None


def _reshaped(maker: Node, dim: int) -> int | None:
    """Where a dimension is once others of size 1 have come or gone."""
    before, after = jnp.shape(maker.args[0]), maker.out_avals[0].shape if maker.out_avals else ()
    if [size for size in before if size != 1] != [size for size in after if size != 1] or before[dim] == 1:
        return None
    number = sum(size != 1 for size in before[:dim])
    return [d for d, size in enumerate(after) if size != 1][number]


_MOVED: Mapping[str, Callable[[Node, int], int | None]] = {
    "convert_element_type": _converted,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "select_n": lambda maker, dim: dim,  # as a negative index is made one that is not
}


def _is_never(asked: Value, value: Value, rewriter: Rewriter) -> bool:
    """Whether it is asked if what is counted from 0 is negative."""
    maker = rewriter.maker(asked)
    if maker is None or maker.name != "lt" or maker.args[0] is not value:
        return False
    limit = constant(maker.args[1])
    return limit is not None and not np.any(limit)


def _component(indices: Value, component: int, rewriter: Rewriter) -> Value:
    """One component of all indices; its last dimension is 1."""
    maker = rewriter.maker(indices)
    glued = maker is not None and maker.name == "concatenate" and maker.params["dimension"] == jnp.ndim(indices) - 1
    if maker is not None and glued and all(jnp.shape(part)[-1] == 1 for part in maker.args):
        return maker.args[component]
    return lax.slice_in_dim(indices, component, component + 1, axis=-1)


def _batched(node: Node, component: int, d: int, slot: int, rewriter: Rewriter) -> Node:
    numbers, (operand, indices, *updates) = node.params["dimension_numbers"], node.args
    others = [n for n in range(jnp.shape(indices)[-1]) if n != component]
    parts = [_component(indices, n, rewriter) for n in others]
    index = lax.concatenate(parts, jnp.ndim(indices) - 1) if len(parts) > 1 else parts[0]
    gone, mapped, lanes = _GATHERED if node.name == "gather" else _SCATTERED
    pairs = sorted([*zip(numbers.operand_batching_dims, getattr(numbers, lanes), strict=True), (d, slot)])
    changed = {
        gone: tuple(each for each in getattr(numbers, gone) if each != d),
        mapped: tuple(getattr(numbers, mapped)[n] for n in others),
        lanes: tuple(lane for _, lane in pairs),
    }
    numbers = numbers._replace(operand_batching_dims=tuple(dim for dim, _ in pairs), **changed)
    return replace(node, params={**node.params, "dimension_numbers": numbers}, args=(operand, index, *updates))
