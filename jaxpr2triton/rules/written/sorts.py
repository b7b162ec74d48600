"""Sorts of rows that fit into one program: integers that are ordered as the keys are, where they lie in order, and then
every operand is looked up there.

    s:f32[4,100] = sort x     →     k:i32[4,100] = …bits of x…;  p = places k;  s[i, j] = x[i, p[i, j]]

A key of 64 bits is two of 32, and of several keys the last one is sorted first; what is equal stays in its order, and
so that is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import is_bool, is_float, is_unsigned
from jaxpr2triton.ir.places import places_p

Array = jax.Array


def _signed(x: Array) -> Array:
    """Integers with a sign in the order of x; floats are in that of their bits, NaNs with a sign before all others."""
    bits = 8 * x.dtype.itemsize
    if is_bool(x.dtype):
        return lax.convert_element_type(x, np.int16)
    if is_float(x.dtype):
        return turned(lax.bitcast_convert_type(x, np.dtype(f"int{bits}")))
    if is_unsigned(x.dtype) and bits >= 16:
        shifted = lax.bitwise_xor(x, _like(x, 1 << (bits - 1)))
        return lax.bitcast_convert_type(shifted, np.dtype(f"int{bits}"))
    return x if bits >= 16 else lax.convert_element_type(x, np.int16)


def turned(bits: Array) -> Array:
    """The bits of floats as integers in their order; turned again, they are what they were."""
    largest = np.iinfo(bits.dtype).max
    return lax.select(lax.lt(bits, _like(bits, 0)), lax.bitwise_xor(bits, _like(bits, largest)), bits)


def _of_signed(key: Array, dtype: np.dtype) -> Array:
    """What has this key, bit for bit."""
    if is_float(dtype):
        return lax.bitcast_convert_type(turned(key), dtype)
    if is_unsigned(dtype) and dtype.itemsize > 1:
        bits = lax.bitcast_convert_type(key, dtype)
        return lax.bitwise_xor(bits, _like(bits, 1 << (8 * dtype.itemsize - 1)))
    return lax.convert_element_type(key, dtype)


def _words(key: Array) -> Iterator[Array]:
    """The parts by which it is sorted, the one that matters least first."""
    if key.dtype.itemsize < 8:
        yield key
        return
    low = lax.convert_element_type(lax.bitwise_and(key, _like(key, 2**32 - 1)), np.uint32)
    yield lax.bitcast_convert_type(lax.bitwise_xor(low, _like(low, 1 << 31)), np.int32)
    yield lax.convert_element_type(lax.shift_right_arithmetic(key, _like(key, 32)), np.int32)


def _like(x: Array, value: Any) -> Array:
    return lax.full_like(x, value)


def _alike(x: Array) -> Array:
    """With one zero and one NaN: for a sort, zeros of both signs are equal, and so are all NaNs, which come last."""
    if not is_float(x.dtype):
        return x
    x = lax.select(lax.eq(x, _like(x, 0)), _like(x, 0), x)
    return lax.select(lax.ne(x, x), _like(x, np.nan), x)


def found(x: Array, places: Array, axis: int) -> Array:
    """The elements at these places of their rows."""
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = lax.GatherDimensionNumbers((), (axis,), (axis,), others, others)
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, lax.reshape(places, (*places.shape, 1)), numbers, (1,) * x.ndim, mode=mode)


def _in_order(keys: Sequence[Array], axis: int) -> Array:
    """Where the rows' elements are in order; the first key matters most."""
    places = None
    for key in reversed(keys):
        for word in _words(key):
            word = word if places is None else found(word, places, axis)
            next_places = places_p.bind(word, axis=axis)
            places = next_places if places is None else found(places, next_places, axis)
    assert places is not None  # there is a key
    return places


def sort(*operands: Array, dimension: int, is_stable: bool, num_keys: int) -> list[Array]:
    places = _in_order([_signed(_alike(key)) for key in operands[:num_keys]], dimension)
    return [found(x, places, dimension) for x in operands]


def top_k(x: Array, *, k: int, axis: int, is_stable: bool = True) -> list[Array]:
    """The largest ones, by their bits: NaNs without a sign come first, and what is equal stays in its order."""
    if k <= policy.COMMON.few:
        return _one_by_one(x, k, axis)
    places = _in_order([lax.bitwise_not(_signed(x))], axis)
    first = lax.slice_in_dim(places, 0, k, axis=axis)
    return [found(x, first, axis), first]


def _one_by_one(x: Array, k: int, axis: int) -> list[Array]:
    """The largest of a row, the first place where it is, and so on with the other ones."""
    keys, here = _signed(x), lax.broadcasted_iota(np.int32, x.shape, axis)
    others = tuple(d for d in range(x.ndim) if d != axis)
    left, values, places = lax.full_like(x, True, np.bool_), [], []
    for _ in range(k):
        best = lax.reduce_max(lax.select(left, keys, _like(keys, np.iinfo(keys.dtype).min)), (axis,))
        is_best = lax.bitwise_and(left, lax.eq(keys, lax.broadcast_in_dim(best, x.shape, others)))
        place = lax.reduce_min(lax.select(is_best, here, _like(here, x.shape[axis])), (axis,))
        left = lax.bitwise_and(left, lax.ne(here, lax.broadcast_in_dim(place, x.shape, others)))
        values.append(lax.expand_dims(_of_signed(best, x.dtype), (axis,)))
        places.append(lax.expand_dims(place, (axis,)))
    return [lax.concatenate(values, axis), lax.concatenate(places, axis)]


TABLE: Mapping[str, Callable[..., list[Array]]] = {"sort": sort, "top_k": top_k}


def axis_of(name: str, params: Mapping[str, Any]) -> int:
    axis: int = params["dimension" if name == "sort" else "axis"]
    return axis


def why_not(name: str, shape: Sequence[int], params: Mapping[str, Any]) -> WhyNot | None:
    """Why a sort stays as it is."""
    size, most = shape[axis_of(name, params)], policy.COMMON.tile // 2
    if size > most:
        return WhyNot(f"a row of {size} is longer than the {most} elements that one program sorts")
    if 0 in shape:
        return WhyNot("its result has no elements")
    return None
