"""`tl.reduce` and `tl.associative_scan` over whole tiles: log2(n) calls of the combining function instead of n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import standard
from triton.language.core import _unwrap_if_constexpr
from triton.runtime.interpreter import TensorHandle

from jaxpr2triton.launch.interpret.arithmetic import NARROW
from jaxpr2triton.launch.interpret.semantic import SEMANTIC

Array = np.ndarray

# Combining functions that NumPy has; floats of a narrow type are rounded after each step and so take the long way.
_NUMPY = {
    standard._sum_combine.fn: np.add,
    standard._elementwise_max.fn: np.fmax,
    standard._elementwise_min.fn: np.fmin,
}


def tensor_of(data: Array, dtype: tl.dtype) -> tl.tensor:
    """A tile, or a scalar if `data` has no dimensions."""
    if data.ndim == 0:
        return tl.tensor(TensorHandle(data.reshape(1), dtype), dtype)
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))


def _combine(function: Callable[..., Any], a: Sequence[Array], b: Sequence[Array], types: Sequence[Any]) -> list[Array]:
    operands = [tensor_of(data, dtype) for half in (a, b) for data, dtype in zip(half, types)]
    results = function(*operands)
    results = results if isinstance(results, (tuple, tl.tuple)) else (results,)
    cast = [SEMANTIC.cast(SEMANTIC.to_tensor(result), dtype).handle.data for result, dtype in zip(results, types)]
    return [np.broadcast_to(data, like.shape) for data, like in zip(cast, a)]


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **more: Any) -> Any:
    """A tree over halves, so a combining function that does not commute is found out, as it would be on a GPU."""
    axis, keep_dims = _unwrap_if_constexpr(axis), _unwrap_if_constexpr(keep_dims)
    inputs = (input,) if isinstance(input, tl.tensor) else tuple(input)
    if not inputs[0].type.is_block():
        return input
    types, rank = [tile.dtype for tile in inputs], len(inputs[0].shape)
    tiles = [tile.handle.data for tile in inputs]
    lanes = [tile.reshape(-1) if axis is None else np.moveaxis(tile, axis, 0) for tile in tiles]
    ufunc = _known(combine_fn, types)
    arrays = _halved(combine_fn, lanes, types) if ufunc is None else [_at_once(ufunc, lanes[0])]
    if keep_dims:
        arrays = [a.reshape((1,) * rank) if axis is None else np.expand_dims(a, axis) for a in arrays]
    results = tuple(tensor_of(np.asarray(array), dtype) for array, dtype in zip(arrays, types))
    return results[0] if isinstance(input, tl.tensor) else results


def _known(combine_fn: Any, types: Sequence[tl.dtype]) -> np.ufunc | None:
    """NumPy's own word for a combining function, where it computes what a tree of calls would."""
    simple = len(types) == 1 and types[0].name not in NARROW and types[0] != tl.int1
    return _NUMPY.get(getattr(combine_fn, "fn", None)) if simple else None


def _at_once(ufunc: np.ufunc, lanes: Array) -> Array:
    """Combined along the first dimension, which is the last one in memory: so NumPy adds in pairs."""
    found = np.asarray(ufunc.reduce(np.ascontiguousarray(np.moveaxis(lanes, 0, -1)), axis=-1))
    return found.astype(lanes.dtype, copy=False)


def _halved(combine_fn: Any, lanes: Sequence[Array], types: Sequence[tl.dtype]) -> list[Array]:
    """Combined along the first dimension: the first half with the second, until one is left."""
    arrays = list(lanes)
    while (half := arrays[0].shape[0] // 2) > 0:
        arrays = _combine(combine_fn, [a[:half] for a in arrays], [a[half:] for a in arrays], types)
    return [array[0] for array in arrays]


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **more: Any) -> Any:
    """Inclusive, by doubling distances."""
    axis, reverse = _unwrap_if_constexpr(axis), _unwrap_if_constexpr(reverse)
    inputs = (input,) if isinstance(input, tl.tensor) else tuple(input)
    types = [tile.dtype for tile in inputs]
    arrays = [np.moveaxis(tile.handle.data, axis, 0) for tile in inputs]
    if reverse:
        arrays = [array[::-1] for array in arrays]
    length, distance = arrays[0].shape[0], 1
    while distance < length:
        earlier = [np.concatenate([a[:distance], a[: length - distance]]) for a in arrays]
        combined = _combine(combine_fn, earlier, arrays, types)
        arrays = [np.concatenate([a[:distance], c[distance:]]) for a, c in zip(arrays, combined)]
        distance *= 2
    if reverse:
        arrays = [array[::-1] for array in arrays]
    results = tuple(tensor_of(np.moveaxis(array, 0, axis), dtype) for array, dtype in zip(arrays, types))
    return results[0] if isinstance(input, tl.tensor) else results
