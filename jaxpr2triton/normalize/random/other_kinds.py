"""Keys of other kinds than JAX's default one: what the functions of that kind compute, those of users too.

b:u32[8] = random_bits[bit_width=32] k   →   _, b = rng_bit_generator (the words of k), for keys of the kind `rbg`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import implementation_of_keys
from jaxpr2triton.normalize.random.keys import MOST_WORDS, Keys, Value, as_array, columns, static_shape, written
from jaxpr2triton.normalize.random.threefry import MOST
from jaxpr2triton.normalize.rewrite import Node, Rewriter


def _seed(node: Node, kind: Any, rewriter: Rewriter) -> list[Value] | None:
    return _keys(_computed(rewriter, _seeded, *node.args, kind=kind), kind)


def _split(node: Node, kind: Any, rewriter: Rewriter) -> list[Value] | None:
    shape = static_shape(node)
    if math.prod(shape) * math.prod(jnp.shape(node.args[0].raw)) > MOST:
        return None
    return _keys(_computed(rewriter, _splitted, node.args[0].raw, kind=kind, shape=shape), kind)


def _fold_in(node: Node, kind: Any, rewriter: Rewriter) -> list[Value] | None:
    return _keys(_computed(rewriter, _folded, node.args[0].raw, node.args[1], kind=kind), kind)


def _bits(node: Node, kind: Any, rewriter: Rewriter) -> list[Value] | None:
    params = {"kind": kind, "width": node.params["bit_width"], "shape": static_shape(node)}
    bits = _computed(rewriter, _drawn, node.args[0].raw, **params)
    return None if bits is None else [as_array(bits)]


def _keys(words: Value | None, kind: Any) -> list[Value] | None:
    if words is None:
        return None
    return [written(words.words if isinstance(words, Keys) else columns(words), kind, typed=True)]


def _computed(rewriter: Rewriter, function: Callable[..., Any], *args: Value, **params: Any) -> Value | None:
    """What a function of a kind computes, its equations offered to the rule; None if it closes over large arrays."""
    closed = jax.make_jaxpr(partial(function, **params))(*args)
    if any(np.size(const) > MOST_WORDS for const in closed.consts):
        return None
    (result,) = rewriter.evaluate(closed.jaxpr, list(map(_written_out, closed.consts)), args, own_lines=False)
    return result


def _written_out(array: Any) -> Any:
    """An array of a few numbers, as an expression of these."""
    numbers = np.asarray(array)
    if numbers.ndim == 0:
        return numbers[()]
    if numbers.size == 0:
        return lax.full(numbers.shape, 0, numbers.dtype)
    return lax.reshape(lax.concatenate([lax.full((1,), each) for each in numbers.ravel()], 0), numbers.shape)


def _seeded(seeds: Any, *, kind: Any) -> Any:
    return _mapped(implementation_of_keys(kind).seed, jnp.ndim(seeds))(seeds)


def _splitted(raw: Any, *, kind: Any, shape: tuple[int, ...]) -> Any:
    return _mapped(lambda key: implementation_of_keys(kind).split(key, shape), jnp.ndim(raw) - 1)(raw)


def _folded(raw: Any, data: Any, *, kind: Any) -> Any:
    shape = jnp.broadcast_shapes(jnp.shape(raw)[:-1], jnp.shape(data))
    fold_in = implementation_of_keys(kind).fold_in
    for axis in reversed(range(len(shape))):
        sizes = [jnp.shape(raw)[:-1], jnp.shape(data)]
        places = [axis - len(shape) + len(each) for each in sizes]
        many = [place >= 0 and each[place] == shape[axis] for place, each in zip(places, sizes)]
        fold_in = jax.vmap(fold_in, [0 if each else None for each in many])
    return fold_in(*_without_ones(raw, data, shape))


def _without_ones(raw: Any, data: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Both without the axes of one element along which the other one has more: these are not mapped over."""

    def squeezed(x: Any, own: tuple[int, ...]) -> Any:
        places = [d for d, size in enumerate(own) if size != shape[d + len(shape) - len(own)]]
        return jnp.squeeze(x, tuple(places))

    return squeezed(raw, jnp.shape(raw)[:-1]), squeezed(data, jnp.shape(data))


def _drawn(raw: Any, *, kind: Any, width: int, shape: tuple[int, ...]) -> Any:
    return _mapped(lambda key: implementation_of_keys(kind).random_bits(key, width, shape), jnp.ndim(raw) - 1)(raw)


def _mapped(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    for _ in range(times):
        function = jax.vmap(function)
    return function


TABLE: Mapping[str, Callable[[Node, Any, Rewriter], list[Value] | None]] = {
    "random_seed": _seed,
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_bits": _bits,
}
