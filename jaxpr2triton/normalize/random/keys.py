"""Random keys as their words: what stands for an array of keys while a program is rewritten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import implementation_of_keys, wrapped_keys
from jaxpr2triton.normalize.random import threefry
from jaxpr2triton.normalize.random.threefry import Words
from jaxpr2triton.normalize.rewrite import Node

Value = Any  # a tracer of the new program, a scalar constant, or `Keys`
MOST_WORDS = 16  # of one key


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
    """Keys in the new program: an array for each word in the place of one array.

    `typed` tells what the old program has there: an array of keys, or `uint32[..., words]`.
    """

    shape: tuple[int, ...]  # of the array of keys
    kind: Any  # its dtype
    typed: bool
    write: Callable[[], Sequence[Any]]  # once, when somebody needs them
    key_array: Any = None  # the array of keys, where the new program has it anyway
    raw_array: Callable[[], Any] | None = None  # likewise uint32[..., words]
    draw: Draw | None = None

    @property
    def words(self) -> Sequence[Any]:
        return self.write()

    @property
    def count(self) -> int:
        """How many words a key has."""
        return words_of(self.kind)

    @property
    def pair(self) -> Words:
        """The words of a key of JAX's default kind."""
        first, second = self.words
        return first, second

    @property
    def raw(self) -> Any:
        """uint32[..., words]"""
        return _stacked(self.words) if self.raw_array is None else self.raw_array()

    def as_kind(self, kind: Any, *, typed: bool) -> Keys:
        return replace(self, kind=kind, typed=typed, key_array=self.key_array if kind == self.kind else None)


@cache
def words_of(kind: Any) -> int:
    (count,) = implementation_of_keys(kind).key_shape
    return int(count)


def is_key(aval: Any) -> bool:
    """True for keys of any kind that are rows of a few words."""
    if not isinstance(aval, jax.core.ShapedArray) or not jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return False
    shape = implementation_of_keys(aval.dtype).key_shape
    return len(shape) == 1 and 0 < shape[0] <= MOST_WORDS


def written(words: Sequence[Any], kind: Any, *, typed: bool) -> Keys:
    return Keys(jnp.shape(words[0]), kind, typed, lambda: tuple(words))


def drawn(keys: Keys, shape: tuple[int, ...], *, local: bool) -> Keys:
    """What the keys are split into."""
    draw = Draw(keys.pair, shape, local)
    whole = (*keys.shape, *shape)

    @cache
    def write() -> Words:
        first, second = draw.at(draw.parent, threefry.places(keys.shape, shape))
        return shaped(first, whole), shaped(second, whole)

    return Keys(whole, keys.kind, keys.typed, write, draw=draw)


def as_keys(value: Value, kind: Any = None) -> Keys:
    """An array of keys, or what is to be keys of that kind, uint32[..., words], as words."""
    if isinstance(value, Keys):
        return value
    shape, typed = jnp.shape(value), is_key(jax.typeof(value))
    kind = jax.typeof(value).dtype if typed else kind
    raw = cache(lambda: jax.random.key_data(value) if typed else value)
    words = cache(lambda: columns(raw()))
    return Keys(shape if typed else shape[:-1], kind, typed, words, key_array=value if typed else None, raw_array=raw)


def as_array(value: Value) -> Any:
    """What the old program had there."""
    if not isinstance(value, Keys):
        return value
    if value.typed and value.key_array is not None:
        return value.key_array
    return wrapped_keys(value.raw, value.kind) if value.typed else value.raw


def static_shape(node: Node) -> tuple[int, ...]:
    """Of what each key draws, or is split into."""
    return tuple(int(size) for size in node.params["shape"])


def shaped(x: Any, shape: Sequence[int]) -> Any:
    return x if jnp.shape(x) == tuple(shape) else lax.reshape(x, shape)


def columns(raw: Any) -> tuple[Any, ...]:
    """The words of uint32[..., words]."""
    last = jnp.ndim(raw) - 1
    count = jnp.shape(raw)[last]
    return tuple(lax.squeeze(lax.slice_in_dim(raw, i, i + 1, axis=last), (last,)) for i in range(count))


def _stacked(words: Sequence[Any]) -> Any:
    axis = jnp.ndim(words[0])
    return lax.concatenate([lax.expand_dims(word, (axis,)) for word in words], axis)
