"""Equations that move keys → the same equations for each of their words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.normalize.random.keys import Draw, Keys, shaped, written
from jaxpr2triton.normalize.rewrite import Node, Rewriter

Params = Mapping[str, Any]

MOVES = frozenset(
    {
        *("broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice", "expand_dims"),
        *("gather", "pvary", "reshape", "rev", "scatter", "select_n", "slice", "split", "squeeze", "stack"),
        *("transpose", "unstack", "optimization_barrier"),
    }
)


def move_keys(node: Node, rewriter: Rewriter) -> list[Any] | None:
    """What an equation that moves keys does to their words; None if it is no such equation.

        b:key[3] = broadcast_in_dim a   →   b0:u32[3] = broadcast_in_dim a0;  b1:u32[3] = broadcast_in_dim a1

    Of what a key is split into, only the keys that are read are written.
    """
    if node.name in ("eq", "ne"):
        return _compared(node)
    if node.name not in MOVES:
        return None
    if node.name == "optimization_barrier":
        return _barrier(node, rewriter)
    if all(arg.typed for arg in node.args if isinstance(arg, Keys)):
        return _moved(node, rewriter, typed=True)
    logical = _without_words(node)
    return None if logical is None else _moved(logical, rewriter, typed=False)


def _moved(node: Node, rewriter: Rewriter, *, typed: bool) -> list[Any]:
    if node.name == "unstack":
        return [_single(node.args[0], node.params["axis"], i, typed) for i in range(len(node.out_avals))]
    if node.name in PICKED and node.args[0].draw is not None:
        picked = PICKED[node.name](node.args[0], node.args[0].draw, node)
        if picked is not None:
            return [written(picked, node.args[0].kind, typed=typed)]
    some = next(arg for arg in node.args if isinstance(arg, Keys))
    parts = [
        rewriter.again(replace(node, args=tuple(a.words[i] if isinstance(a, Keys) else a for a in node.args)))
        for i in range(some.count)
    ]
    return [written(words, some.kind, typed=typed) for words in zip(*parts)]


def _compared(node: Node) -> list[Any] | None:
    if not all(isinstance(arg, Keys) and arg.typed for arg in node.args):
        return None
    parts = [node.primitive.bind(*words, **node.params) for words in zip(*(arg.words for arg in node.args))]
    return [reduce(lax.bitwise_and if node.name == "eq" else lax.bitwise_or, parts)]


def _barrier(node: Node, rewriter: Rewriter) -> list[Any]:
    flat = [word for arg in node.args for word in (arg.words if isinstance(arg, Keys) else (arg,))]
    outs = iter(rewriter.again(replace(node, args=tuple(flat))))
    return [
        written([next(outs) for _ in arg.words], arg.kind, typed=arg.typed) if isinstance(arg, Keys) else next(outs)
        for arg in node.args
    ]


def _single(keys: Keys, axis: int, place: int, typed: bool) -> Keys:
    starts = tuple(place if d == axis else 0 for d in range(len(keys.shape)))
    limits = tuple(place + 1 if d == axis else size for d, size in enumerate(keys.shape))
    words = None if keys.draw is None else _picked(keys, keys.draw, starts, limits, None)
    words = words or [lax.slice(word, starts, limits) for word in keys.words]
    shape = keys.shape[:axis] + keys.shape[axis + 1 :]
    return written([shaped(word, shape) for word in words], keys.kind, typed=typed)


def _sliced(keys: Keys, draw: Draw, node: Node) -> Sequence[Any] | None:
    bounds = (node.params[key] for key in ("start_indices", "limit_indices", "strides"))
    words = _picked(keys, draw, *bounds)
    return words and [shaped(word, jnp.shape(word) + (1,) * len(draw.shape)) for word in words]


def _picked(
    keys: Keys, draw: Draw, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None
) -> Sequence[Any] | None:
    """One of what each key is split into, without the others and without the axes of the split."""
    steps = strides or (1,) * len(starts)
    sizes = tuple(-(-(limit - start) // step) for start, limit, step in zip(starts, limits, steps))
    lead = len(sizes) - len(draw.shape)
    if any(size != 1 for size in sizes[lead:]):
        return None
    place = sum(start * stride for start, stride in zip(starts[lead:], _row_major(draw.shape)))
    parent = draw.parent
    if sizes[:lead] != keys.shape[:lead]:
        first, second = (lax.slice(word, starts[:lead], limits[:lead], steps[:lead]) for word in parent)
        parent = first, second
    return draw.at(parent, place)


def _dynamic(keys: Keys, draw: Draw, node: Node) -> Sequence[Any] | None:
    sizes, starts = node.params["slice_sizes"], node.args[1:]
    lead = len(sizes) - len(draw.shape)
    if any(size != 1 for size in sizes[lead:]):
        return None
    place: Any = np.uint32(0)
    for start, size, stride in zip(starts[lead:], draw.shape, _row_major(draw.shape)):
        dtype = jax.typeof(start).dtype
        inside = lax.clamp(np.zeros((), dtype)[()], start, np.asarray(size - 1, dtype)[()])
        place = lax.add(place, lax.mul(lax.convert_element_type(inside, np.uint32), np.uint32(stride)))
    parent = draw.parent
    if tuple(sizes[:lead]) != keys.shape[:lead]:
        first, second = (lax.dynamic_slice(word, starts[:lead], sizes[:lead]) for word in parent)
        parent = first, second
    return [shaped(word, sizes) for word in draw.at(parent, place)]


def _row_major(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1]


PICKED: Mapping[str, Callable[[Keys, Draw, Node], Sequence[Any] | None]] = {"slice": _sliced, "dynamic_slice": _dynamic}


def _without_words(node: Node) -> Node | None:
    """An equation on uint32[..., words] as one on keys; None if it touches the last axis."""
    if node.name not in WITHOUT_WORDS:
        return None
    arrays = node.args[1:] if node.name == "select_n" else node.args[:1] if node.name == "dynamic_slice" else node.args
    if not all(isinstance(array, Keys) for array in arrays):
        return None
    last = len(arrays[0].shape)
    params = WITHOUT_WORDS[node.name](node, last)
    if params is None:
        return None
    args = node.args[:-1] if node.name == "dynamic_slice" else node.args
    return replace(node, params={**node.params, **params}, args=args)


def _slice(node: Node, last: int) -> Params | None:
    starts, limits, strides = (node.params[key] for key in ("start_indices", "limit_indices", "strides"))
    if (starts[last], limits[last]) != (0, node.args[0].count) or (strides is not None and strides[last] != 1):
        return None
    return {"start_indices": starts[:last], "limit_indices": limits[:last], "strides": strides and strides[:last]}


def _squeeze(node: Node, last: int) -> Params | None:
    return None if last in node.params["dimensions"] else {}


def _reshape(node: Node, last: int) -> Params | None:
    sizes = node.params["new_sizes"]
    plain = node.params["dimensions"] is None and node.params["sharding"] is None
    return {"new_sizes": sizes[:-1]} if sizes and sizes[-1] == node.args[0].count and plain else None


def _broadcast(node: Node, last: int) -> Params | None:
    shape, places = node.params["shape"], node.params["broadcast_dimensions"]
    if places[last] != len(shape) - 1 or node.params["sharding"] is not None:
        return None
    return {"shape": shape[:-1], "broadcast_dimensions": places[:-1]}


def _transpose(node: Node, last: int) -> Params | None:
    order = node.params["permutation"]
    return {"permutation": order[:-1]} if order[-1] == last else None


def _concatenate(node: Node, last: int) -> Params | None:
    return {} if node.params["dimension"] != last else None


def _rev(node: Node, last: int) -> Params | None:
    return None if last in node.params["dimensions"] else {}


def _unstack(node: Node, last: int) -> Params | None:
    return {} if node.params["axis"] != last else None


def _dynamic_slice(node: Node, last: int) -> Params | None:
    sizes = node.params["slice_sizes"]
    return {"slice_sizes": sizes[:-1]} if sizes[-1] == node.args[0].count else None


def _select(node: Node, last: int) -> Params | None:
    return {} if jnp.ndim(node.args[0]) == 0 else None


def _copy(node: Node, last: int) -> Params:
    return {}


WITHOUT_WORDS: Mapping[str, Callable[[Node, int], Params | None]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "copy": _copy,
    "copy_p": _copy,
    "dynamic_slice": _dynamic_slice,
    "pvary": _copy,
    "reshape": _reshape,
    "rev": _rev,
    "select_n": _select,
    "slice": _slice,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unstack": _unstack,
}
