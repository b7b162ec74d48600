"""`rng_bit_generator` as integer arithmetic, in which every element depends on nothing but its own place.

A state is uint32[4], or uint64[2]: 64 bits of a key, and 64 bits of a count; the next state has counted on. Philox is
what XLA takes by default, on CPUs and on GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.ir.hashing import philox_p, threefry_p
from jaxpr2triton.normalize.random.keys import columns
from jaxpr2triton.normalize.random.threefry import MOST, places

Value = Any
PER_BLOCK = 4  # words that one hash of Philox gives


def generated(state: Value, params: Mapping[str, Any]) -> list[Value] | None:
    """The next state and the bits; None if there are too many."""
    shape, dtype = tuple(map(int, params["shape"])), np.dtype(params["dtype"])
    count = math.prod(shape)
    if 2 * count > MOST or jnp.ndim(state) != 1:
        return None
    words = _words(state)
    by = _threefry if params["algorithm"] == lax.RandomAlgorithm.RNG_THREE_FRY else _philox
    if count == 0:
        return [state, lax.full(shape, 0, dtype)]
    bits, steps = by(words, shape, wide=dtype.itemsize == 8)
    return [_state(words, steps, jax.typeof(state).dtype), lax.convert_element_type(bits, dtype)]


def _philox(words: Sequence[Value], shape: Sequence[int], wide: bool) -> tuple[Value, int]:
    """Four words from each count: numbers of 32 bits, or two of 64 bits."""
    key, state = words[:2], words[2:]
    count = math.prod(shape) * (2 if wide else 1)
    blocks = -(-count // PER_BLOCK)
    counts = _plus((*state, *key), places((), (blocks,)))  # what is carried beyond the count goes into the key
    hashed = [_spread(philox_p.bind(*key, *counts, word=word), (blocks,)) for word in range(PER_BLOCK)]
    if wide:
        hashed = [_joined(*hashed[:2]), _joined(*hashed[2:])]
    rows = lax.concatenate([lax.expand_dims(each, (1,)) for each in hashed], 1)
    flat = lax.slice(lax.reshape(rows, (blocks * len(hashed),)), (0,), (math.prod(shape),))
    return lax.reshape(flat, tuple(shape)), blocks


def _threefry(words: Sequence[Value], shape: Sequence[int], wide: bool) -> tuple[Value, int]:
    """Two words from each count: a number of 64 bits, or neighbours along the first dimension of even size."""
    key, state = words[:2], words[2:]
    if wide:
        hashed = _both(key, _plus(state, places((), shape)), shape)
        return _joined(*hashed), math.prod(shape)
    if not shape:
        return lax.squeeze(_threefry(words, (1,), False)[0], (0,)), 1
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    axis = even[0] if even else int(np.argmax(shape))
    half = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    hashed = _both(key, _plus(state, places((), half)), half)
    pairs = lax.concatenate([lax.expand_dims(each, (axis + 1,)) for each in hashed], axis + 1)
    whole = lax.reshape(pairs, (*half[:axis], 2 * half[axis], *half[axis + 1 :]))
    return lax.slice_in_dim(whole, 0, shape[axis], axis=axis), math.prod(half)


def _both(key: Sequence[Value], counts: Sequence[Value], shape: Sequence[int]) -> list[Value]:
    return [_spread(threefry_p.bind(*key, *counts, word=word), shape) for word in (0, 1)]


def _spread(x: Value, shape: Sequence[int]) -> Value:
    return x if jnp.shape(x) == tuple(shape) else lax.broadcast(x, tuple(shape))


def _words(state: Value) -> tuple[Value, ...]:
    """Four words, the lower one of each 64 bits first."""
    parts = columns(state)
    if jax.typeof(state).dtype == np.uint32:
        return parts
    low = [lax.convert_element_type(part, np.uint32) for part in parts]
    high = [
        lax.convert_element_type(lax.shift_right_logical(part, jnp.full_like(part, 32)), np.uint32) for part in parts
    ]
    return low[0], high[0], low[1], high[1]


def _state(words: Sequence[Value], steps: int, dtype: Any) -> Value:
    parts = (words[0], words[1], *_plus(words[2:], np.uint32(steps)))
    if dtype != np.uint32:
        parts = (_joined(*parts[:2]), _joined(*parts[2:]))
    return lax.concatenate([lax.reshape(part, (1,)) for part in parts], 0)


def _plus(number: Sequence[Value], more: Value | int) -> list[Value]:
    """A number of several words, the lowest one first, and a word; 0 is the place of a single element."""
    if isinstance(more, int):
        return list(number)
    total = []
    for word in number:
        word = _spread(word, jnp.shape(more))
        total.append(lax.add(word, more))
        more = lax.convert_element_type(lax.lt(total[-1], word), np.uint32)
    return total


def _joined(low: Value, high: Value) -> Value:
    low, high = lax.convert_element_type(low, np.uint64), lax.convert_element_type(high, np.uint64)
    return lax.bitwise_or(lax.shift_left(high, jnp.full_like(high, 32)), low)
