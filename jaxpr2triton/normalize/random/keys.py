"""Random keys as their two words: what stands for an array of keys while a program is rewritten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.normalize.random import threefry
from jaxpr2triton.normalize.random.threefry import Words

Value = Any  # a tracer of the new program, a scalar constant, or `Keys`
IMPLEMENTATION = "threefry2x32"


@dataclass(frozen=True, eq=False)
class Draw:
    """What a split makes, of which nothing is written yet."""

    parent: Words
    shape: tuple[int, ...]  # of the keys that each key is split into
    local: bool

    def at(self, parent: Words, place: Any) -> Words:
        return threefry.split(parent, place, math.prod(self.shape), local=self.local)


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys in the new program: two arrays of words in the place of one array.

    `typed` tells what the old program has there: an array of keys, or `uint32[..., 2]`.
    """

    shape: tuple[int, ...]  # of the array of keys
    typed: bool
    write: Callable[[], Words]  # once, when somebody needs them
    key_array: Any = None  # the array of keys, where the new program has it anyway
    raw_array: Callable[[], Any] | None = None  # likewise uint32[..., 2]
    draw: Draw | None = None

    @property
    def words(self) -> Words:
        return self.write()

    def as_typed(self, typed: bool) -> Keys:
        return replace(self, typed=typed)


@cache
def key_dtype() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl=IMPLEMENTATION)).dtype


def is_key(aval: Any) -> bool:
    """True for keys of JAX's default kind; no other kind is rewritten."""
    return isinstance(aval, jax.core.ShapedArray) and bool(aval.dtype == key_dtype())


def written(words: Sequence[Any], *, typed: bool) -> Keys:
    first, second = words
    return Keys(jnp.shape(first), typed, lambda: (first, second))


def drawn(keys: Keys, shape: tuple[int, ...], *, local: bool) -> Keys:
    """What the keys are split into."""
    draw = Draw(keys.words, shape, local)
    whole = (*keys.shape, *shape)

    @cache
    def write() -> Words:
        first, second = draw.at(draw.parent, threefry.places(keys.shape, shape))
        return shaped(first, whole), shaped(second, whole)

    return Keys(whole, keys.typed, write, draw=draw)


def as_keys(value: Value) -> Keys:
    """An array of keys, or uint32[..., 2], as words."""
    if isinstance(value, Keys):
        return value
    shape = jnp.shape(value)
    typed = is_key(jax.typeof(value))
    raw = cache(lambda: jax.random.key_data(value) if typed else value)
    words = cache(lambda: _columns(raw()))
    return Keys(shape if typed else shape[:-1], typed, words, key_array=value if typed else None, raw_array=raw)


def as_array(value: Value) -> Any:
    """What the old program had there."""
    if not isinstance(value, Keys):
        return value
    if value.typed and value.key_array is not None:
        return value.key_array
    raw = _stacked(value.words) if value.raw_array is None else value.raw_array()
    return jax.random.wrap_key_data(raw, impl=IMPLEMENTATION) if value.typed else raw


def shaped(x: Any, shape: Sequence[int]) -> Any:
    return x if jnp.shape(x) == tuple(shape) else lax.reshape(x, shape)


def _columns(raw: Any) -> Words:
    last = jnp.ndim(raw) - 1
    first, second = (lax.squeeze(lax.slice_in_dim(raw, i, i + 1, axis=last), (last,)) for i in range(2))
    return first, second


def _stacked(words: Words) -> Any:
    axis = jnp.ndim(words[0])
    return lax.concatenate([lax.expand_dims(word, (axis,)) for word in words], axis)
