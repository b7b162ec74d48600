"""Threefry, the hash behind JAX's random bits, as an equation of its own: `threefry[word=0] key0 key1 high low`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import batching, mlir

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


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


# Two words of a key and two of a count → one of two words. Scalars fit everywhere.
threefry_p = jex.Primitive("threefry")


@threefry_p.def_impl
def _impl(*words: Any, word: int) -> Any:
    return jax.jit(_rounds_of, static_argnames="word")(*words, word=word)


def _rounds_of(*words: Any, word: int) -> Any:
    shape = jnp.broadcast_shapes(*map(jnp.shape, words))
    return rounds(*(jnp.broadcast_to(jnp.asarray(each, np.uint32), shape) for each in words))[word]


@threefry_p.def_abstract_eval
def _aval(*words: Any, word: int) -> Any:
    return next((each for each in words if each.shape), words[0])


def _batched(words: Sequence[Any], dims: Sequence[Any], *, word: int) -> tuple[Any, int]:
    """Along a leading axis; what has no axes needs none."""
    first = [each if dim is None else jnp.moveaxis(each, dim, 0) for each, dim in zip(words, dims)]
    size = next(len(each) for each, dim in zip(first, dims) if dim is not None)
    rest = max((jnp.shape(each)[dim is not None :] for each, dim in zip(first, dims)), key=len)

    def spread(each: Any, batched: bool) -> Any:
        if not batched:
            return jnp.broadcast_to(each, (size, *rest)) if jnp.ndim(each) else each
        return lax.broadcast_in_dim(each, (size, *rest), (0, *range(len(rest) + 2 - jnp.ndim(each), len(rest) + 1)))

    return threefry_p.bind(*(spread(each, dim is not None) for each, dim in zip(first, dims)), word=word), 0


mlir.register_lowering(threefry_p, mlir.lower_fun(_rounds_of, multiple_results=False))
batching.primitive_batchers[threefry_p] = _batched
