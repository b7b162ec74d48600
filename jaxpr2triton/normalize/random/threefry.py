"""JAX's default random bits as plain uint32 arithmetic, in which every element depends on nothing but its own place.

Keys are pairs of words. A place is the position of an element in what one key draws: an int if it is known, else a
uint32 array, whose leading axes are those of the keys. JAX numbers the elements in one of two ways: `local` is
`jax_threefry_partitionable`, its default; the older way pairs each element with one half of an array away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.ir.hashing import threefry_p

Value = Any
Words = tuple[Value, Value]  # two uint32 arrays of one shape

MOST = 1 << 32  # a place fits into one word


def threefry2x32(key: Words, counts: Words) -> Words:
    """The two words of the hash. The axes of smaller operands are the leading ones of the larger."""
    shape = _together(*key, *counts)
    words = [each if isinstance(each, np.uint32) else _spread(each, shape) for each in (*key, *counts)]
    if shape and all(jnp.shape(each) != shape for each in words):
        words[0] = lax.broadcast(words[0], shape)
    return threefry_p.bind(*words, word=0), threefry_p.bind(*words, word=1)


def _together(*arrays: Value) -> tuple[int, ...]:
    sizes = zip_longest(*(jnp.shape(array) for array in arrays), fillvalue=1)
    return tuple(next((size for size in axis if size != 1), 1) for axis in sizes)


def _spread(x: Value, shape: tuple[int, ...]) -> Value:
    """Scalars fit everywhere."""
    have = jnp.shape(x)
    return x if have in ((), shape) else lax.broadcast_in_dim(x, shape, range(len(have)))


def places(leading: Sequence[int], shape: Sequence[int]) -> Value | int:
    """The place of each element: of shape `leading` and then `shape`; 0 if each key draws one element."""
    if math.prod(shape) == 1:
        return 0
    place: Value = None
    stride = 1
    for axis in reversed([axis for axis, size in enumerate(shape) if size != 1]):
        steps = lax.broadcasted_iota(np.uint32, (*leading, *shape), len(leading) + axis)
        steps = steps if stride == 1 else lax.mul(steps, np.uint32(stride))
        place = steps if place is None else lax.add(steps, place)
        stride *= shape[axis]
    return place


def seeded(seed: Value) -> Words:
    """The key of an integer: its upper and its lower 32 bits."""
    low = lax.convert_element_type(seed, np.uint32)
    dtype = jax.typeof(seed).dtype
    if dtype.itemsize < 8:
        return lax.full_like(low, 0), low
    high = lax.shift_right_logical(seed, np.asarray(32, dtype)[()])
    return lax.convert_element_type(high, np.uint32), low


def folded(key: Words, data: Value) -> Words:
    """The key made of a key and an integer."""
    return _hash(key, 0, lax.convert_element_type(data, np.uint32))


def split(key: Words, place: Value | int, count: int, *, local: bool) -> Words:
    """The key at a place of the `count` keys that one key is split into."""
    if local:
        return _hash(key, 0, place)
    twice = 2 * place if isinstance(place, int) else lax.shift_left(place, np.uint32(1))
    after = twice + 1 if isinstance(twice, int) else lax.add(twice, np.uint32(1))
    return _paired(key, twice, 2 * count), _paired(key, after, 2 * count)


def bits(key: Words, place: Value | int, count: int, width: int, *, local: bool) -> Value:
    """The unsigned integer of `width` bits at a place of the `count` that a key draws."""
    dtype = np.dtype(f"uint{width}")
    match width:
        case 64:
            high, low = _hash(key, *((0, place) if local else (place, _shifted(place, count))))
            high, low = lax.convert_element_type(high, dtype), lax.convert_element_type(low, dtype)
            return lax.bitwise_or(lax.shift_left(high, np.uint64(32)), low)
        case _ if local:
            return lax.convert_element_type(lax.bitwise_xor(*_hash(key, 0, place)), dtype)
        case 32:
            return _paired(key, place, count)
    parts = 32 // width  # the numbers of one word
    words = -(-count // parts)
    if isinstance(place, int):
        word = _paired(key, place // parts, words)
        offset: Value = np.uint32(place % parts * width)
    else:
        word = _paired(key, lax.shift_right_logical(place, np.uint32(parts.bit_length() - 1)), words)
        offset = lax.mul(lax.bitwise_and(place, np.uint32(parts - 1)), np.uint32(width))
    return lax.convert_element_type(lax.shift_right_logical(word, _spread(offset, jnp.shape(word))), dtype)


def _shifted(place: Value | int, by: int) -> Value | int:
    return place + by if isinstance(place, int) else lax.add(place, np.uint32(by))


def _paired(key: Words, place: Value | int, count: int) -> Value:
    """The older way: of `count` numbers, the first half and the second half are hashed together."""
    half = -(-count // 2)
    if isinstance(place, int):
        early = place % half
        return _hash(key, early, early + half if early + half < count else 0)[place // half]
    if half == count:
        return _hash(key, place, 0)[0]
    late = lax.ge(place, np.uint32(half))
    first = lax.select(late, lax.sub(place, np.uint32(half)), place)
    second = lax.add(first, np.uint32(half))
    if count % 2:  # the last of the first half stands alone, beside a zero
        second = lax.select(lax.lt(second, np.uint32(count)), second, lax.full_like(second, 0))
    x, y = _hash(key, first, second)
    return lax.select(_spread(late, jnp.shape(x)), y, x)


def _hash(key: Words, high: Value | int, low: Value | int) -> Words:
    """Keys of leading axes, hashed with places that may have more."""
    counts = tuple(np.uint32(word) if isinstance(word, int) else word for word in (high, low))
    return threefry2x32(key, (counts[0], counts[1]))
