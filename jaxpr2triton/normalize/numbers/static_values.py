"""Whole numbers that are known before a program runs, however it spells them: iota, arithmetic, comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton import policy
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.normalize.numbers.folding import computed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant
from jaxpr2triton.rules.indexing import MOVES
from jaxpr2triton.rules.pointwise.table import POINTWISE


def static_array(value: Value, rewriter: Rewriter) -> np.ndarray | None:
    """The value, if it consists of whole numbers and depends on no operand of the program."""
    number = constant(value)
    if number is not None:
        return number
    memo = rewriter.notes.setdefault("known arrays", {})
    for each in postorder([value], lambda each: _parts(each, rewriter), memo, key=id):
        args = [constant(arg) if constant(arg) is not None else memo[id(arg)][1] for arg in _parts(each, rewriter)]
        memo[id(each)] = each, _computed(each, args, rewriter)  # the value is kept, so that no other one gets its id
    found: np.ndarray | None = memo[id(value)][1]
    return found


def _parts(value: Value, rewriter: Rewriter) -> tuple[Value, ...]:
    """What a value of few whole numbers is computed from."""
    maker = rewriter.maker(value)
    if maker is None or not _is_simple(maker) or not _is_whole(value) or jnp.size(value) > policy.COMMON.known:
        return ()
    return tuple(maker.args)


def _computed(value: Value, args: Sequence[np.ndarray | None], rewriter: Rewriter) -> np.ndarray | None:
    maker, known = rewriter.maker(value), [arg for arg in args if arg is not None]
    if constant(value) is not None:
        return constant(value)
    if maker is None or len(known) < len(maker.args):
        return None
    return computed(maker.primitive, known, maker.params, jax.typeof(value).dtype)


def _is_simple(node: Node) -> bool:
    return node.name in POINTWISE or node.name in MOVES


def _is_whole(value: Value) -> bool:
    dtype = jax.typeof(value).dtype
    return bool(jnp.issubdtype(dtype, jnp.integer) or is_bool(dtype))


def equations_of(value: Value, rewriter: Rewriter) -> list[tuple[Node, Value]] | None:
    """The equations that make a value out of nothing but numbers, in order; None if it takes operands or real work."""
    asked = [value] if constant(value) is None else []
    for number, each in enumerate(reachable(asked, lambda each: _unknown(each, rewriter), key=id)):
        if number > policy.COMMON.one_by_one or not _is_cheap(each, rewriter):
            return None
    found: dict[int, tuple[Node, Value]] = {}
    for each in postorder(asked, lambda each: _unknown(each, rewriter), found, key=id):
        maker = rewriter.maker(each)
        assert maker is not None  # it is cheap
        found[id(each)] = maker, each
    return list(found.values())


def _unknown(value: Value, rewriter: Rewriter) -> list[Value]:
    """The operands that are not known."""
    maker = rewriter.maker(value)
    return [] if maker is None else [arg for arg in maker.args if constant(arg) is None]


def _is_cheap(value: Value, rewriter: Rewriter) -> bool:
    maker = rewriter.maker(value)
    if maker is None or not _is_simple(maker):
        return False
    return maker.name in MOVES or maker.name in ("convert_element_type", "select_n") or _is_whole(value)


def written_again(equations: Sequence[tuple[Node, Value]], value: Value) -> Value:
    """The value in another program."""
    made: dict[int, Value] = {}
    for node, result in equations:
        args = [made.get(id(arg), arg) for arg in node.args]
        made[id(result)] = node.primitive.bind(*args, **node.primitive.get_bind_params(node.params))
    return made.get(id(value), value)


def steps_of(indices: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
    """`start` and `step` if the rows of [count, number of dimensions] are evenly spaced places inside of an array."""
    if not len(indices) or (indices < 0).any() or (indices >= np.asarray(sizes)).any():
        return None
    start = indices[0].astype(np.int64)
    step = indices[1].astype(np.int64) - start if len(indices) > 1 else np.zeros_like(start)
    even = np.array_equal(indices, start + np.arange(len(indices))[:, None] * step)
    return (start, step) if even and (step.any() or len(indices) == 1) else None


def flat_strides(sizes: Sequence[int]) -> np.ndarray:
    """How far apart in memory neighbours along each dimension are."""
    return np.array([math.prod(sizes[d + 1 :]) for d in range(len(sizes))], np.int64)
