"""The hashes behind random bits, as equations of their own: `threefry[word=0] key0 key1 high low`, and `philox`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import batching, mlir

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
FACTORS = (np.uint32(0xD2511F53), np.uint32(0xCD9E8D57))
STEPS = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))  # of the key, from round to round


def rounds(k: Any, l: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """20 rounds of add, rotate and xor."""
    schedule = (k, l, lax.bitwise_xor(lax.bitwise_xor(k, l), PARITY))
    x, y = lax.add(x, k), lax.add(y, l)
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = lax.add(x, y)
            turned = lax.shift_left(y, np.uint32(distance)), lax.shift_right_logical(y, np.uint32(32 - distance))
            y = lax.bitwise_xor(x, lax.bitwise_or(*turned))
        x = lax.add(x, schedule[(group + 1) % 3])
        y = lax.add(y, lax.add(schedule[(group + 2) % 3], np.uint32(group + 1)))
    return x, y


def philox_rounds(k: Any, l: Any, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, ...]:
    """10 rounds of wide products and xor."""
    for _ in range(10):
        x, y = lax.mulhi(a, jnp.full_like(a, FACTORS[0])), lax.mulhi(c, jnp.full_like(c, FACTORS[1]))
        mixed = lax.bitwise_xor(lax.bitwise_xor(y, b), k), lax.bitwise_xor(lax.bitwise_xor(x, d), l)
        a, b, c, d = mixed[0], lax.mul(c, FACTORS[1]), mixed[1], lax.mul(a, FACTORS[0])
        k, l = lax.add(k, STEPS[0]), lax.add(l, STEPS[1])
    return a, b, c, d


def _word(*words: Any, word: int, of: Callable[..., tuple[Any, ...]]) -> Any:
    shape = jnp.broadcast_shapes(*map(jnp.shape, words))
    return of(*(jnp.broadcast_to(jnp.asarray(each, np.uint32), shape) for each in words))[word]


def _aval(*words: Any, word: int) -> Any:
    return next((each for each in words if each.shape), words[0])


def _batched(primitive: Any, words: Sequence[Any], dims: Sequence[Any], *, word: int) -> tuple[Any, int]:
    """Along a leading axis; what has no axes needs none."""
    first = [each if dim is None else jnp.moveaxis(each, dim, 0) for each, dim in zip(words, dims)]
    size = next(len(each) for each, dim in zip(first, dims) if dim is not None)
    rest = max((jnp.shape(each)[dim is not None :] for each, dim in zip(first, dims)), key=len)

    def spread(each: Any, batched: bool) -> Any:
        if not batched:
            return jnp.broadcast_to(each, (size, *rest)) if jnp.ndim(each) else each
        return lax.broadcast_in_dim(each, (size, *rest), (0, *range(len(rest) + 2 - jnp.ndim(each), len(rest) + 1)))

    return primitive.bind(*(spread(each, dim is not None) for each, dim in zip(first, dims)), word=word), 0


def _hash(name: str, of: Callable[..., tuple[Any, ...]]) -> Any:
    """A primitive of uint32 words, one of whose results is wanted. Scalars fit everywhere."""
    primitive = jex.Primitive(name)
    written = partial(_word, of=of)
    primitive.def_impl(jax.jit(written, static_argnames="word"))
    primitive.def_abstract_eval(_aval)
    mlir.register_lowering(primitive, mlir.lower_fun(written, multiple_results=False))
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    return primitive


threefry_p = _hash("threefry", rounds)  # two words of a key and two of a count → one of two words
philox_p = _hash("philox", philox_rounds)  # two words of a key and four of a count → one of four words
