"""A reduction by a function of the user's own, as one equation for each of its results.

    y:f32[8] = reduced[axes=(1,) combine=C empty=(-inf, 0) output=0] a:f32[8,1000] i:i32[8,1000]

An element has several parts, and C makes one element of two; `empty` is the one that changes nothing. The two are a
monoid, as `lax.reduce` asks, whose elements may change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from jaxpr2triton._compat import called_jaxpr, closed_with, operands_of_call
from jaxpr2triton.ir import batched, evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn, made
from jaxpr2triton.ir.scanned import Combination, alike, combination, combined

Empty = tuple[np.generic, ...]

reduced_p = jex.Primitive("reduced")


def _run(*operands: Any, axes: Sequence[int], combine: Combination, empty: Empty, output: int) -> Any:

    def both(left: Any, right: Any) -> Any:
        return tuple(combined(combine, left, right))

    return lax.reduce(tuple(operands), tuple(map(jnp.asarray, empty)), both, tuple(axes))[output]


@reduced_p.def_impl
def _impl(*operands: Any, **how: Any) -> Any:
    return jax.jit(lambda *args: _run(*args, **how))(*operands)


@reduced_p.def_abstract_eval
def _aval(*operands: Any, axes: Sequence[int], combine: Combination, empty: Empty, output: int) -> Any:
    of = operands[output]
    return jax.core.ShapedArray(tuple(size for d, size in enumerate(of.shape) if d not in axes), of.dtype)


mlir.register_lowering(reduced_p, mlir.lower_fun(_run, multiple_results=False))
batched.define(reduced_p, along="axes")


def monoid_of(starts: Sequence[Any], function: Any) -> tuple[Combination, Empty]:
    """What a `reduce` of JAX's combines elements by, and begins with."""
    closed = made(function) if hasattr(function, "jaxpr") else made(closed_with(function, ()))
    avals = closed.in_avals[: len(starts)]
    empty = tuple(aval.dtype.type(start) for start, aval in zip(starts, avals, strict=True))
    return combination(_without_calls(closed)), empty


def _without_calls(closed: Closed) -> Closed:
    """The program of scalars with all that it calls written out."""

    def once(closed: Closed) -> Closed:
        inner = closed.jaxpr

        evaluated = jax.make_jaxpr(lambda *args: evaluate.outputs(inner, closed.consts, args, _called))
        return made(evaluated(*(var.aval for var in inner.invars)))

    while any(called_jaxpr(eqn.primitive.name, eqn.params) is not None for eqn in closed.jaxpr.eqns):
        closed = once(closed)
    return closed


def _called(eqn: Eqn, values: list[Any]) -> list[Any] | None:
    """What a call makes, with the calls in it as they are."""
    called = called_jaxpr(eqn.primitive.name, eqn.params)
    if called is None:
        return None
    jaxpr, consts = called
    return list(jax.core.eval_jaxpr(jaxpr, consts, *operands_of_call(eqn.primitive.name, eqn.params, values)))


class Law(Enum):
    """What holds for a function and the element that it begins with."""

    NEUTRAL = auto()  # that element changes nothing
    ASSOCIATIVE = auto()
    COMMUTATIVE = auto()
    EXACT = auto()  # … to the last bit, however products and sums are rounded: all lanes have the same result


COUNTED = "counted"  # a part that is the place of an element
Parts = tuple[Any, ...]  # of each part of the elements: the one number that it is, COUNTED, or None


@lru_cache(maxsize=256)
def broken(combine: Combination, empty: Empty, parts: Parts) -> frozenset[Law]:
    """The laws that do not hold for elements with such parts, and for what is combined of them; none if all seem to.

    It is tried with positive numbers, of few values so that many are equal: weights and counts are such, and where a
    function is of no use for others it need not hold for these.
    """
    rng = np.random.default_rng(0)
    drawn = list(zip(*(_drawn(part, each.dtype, rng) for part, each in zip(parts, empty, strict=True))))
    nothing = [np.broadcast_to(each, (_TRIED,)) for each in empty]

    def both(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        return combined(combine, list(one), list(other))

    def tried(*args: Any) -> list[tuple[list[Any], list[Any]]]:
        a, b, c, e = (list(args[n * len(parts) : (n + 1) * len(parts)]) for n in range(4))
        ab = both(a, b)
        neutral = [(both(e, ab), ab), (both(ab, e), ab), (both(e, a), a), (both(a, e), a)]
        return [*neutral, (both(ab, c), both(a, both(b, c))), (ab, both(b, a)), (both(ab, c), both(c, ab))]

    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        found = jax.jit(tried)(*(part for each in (*drawn, nothing) for part in each))
    laws = zip((*[Law.NEUTRAL] * 4, Law.ASSOCIATIVE, *[Law.COMMUTATIVE] * 2), found, strict=True)
    broken_ones = {law for law, (one, other) in laws if not all(map(_alike, one, other))}
    are_same = all(_are_same(*each) for one, other in found[-2:] for each in zip(one, other))
    is_fused = any(jnp.issubdtype(each.dtype, jnp.inexact) for each in empty) and all(
        not names.isdisjoint(combine.primitives) for names in (_PRODUCTS, _SUMS)
    )
    if is_fused or not are_same:
        broken_ones.add(Law.EXACT)
    return frozenset(broken_ones)


_PRODUCTS = frozenset({"mul", "square", "integer_pow"})
_SUMS = frozenset({"add", "sub", "add_any"})  # which compilers round once, with a product in them


def in_order_of_places(combine: Combination) -> Combination:
    """With one more part, the first place of what is combined: the element that comes first is always the left one.

    So all lanes that combine the same elements round alike, whichever of them is theirs.
    """
    parts = combine.parts

    def run(*args: Any) -> list[Any]:
        left, right = args[: parts + 1], args[parts + 1 :]
        is_first = lax.le(left[parts], right[parts])
        first = [lax.select(is_first, one, other) for one, other in zip(left, right)]
        second = [lax.select(is_first, other, one) for one, other in zip(left, right)]
        return [*combined(combine, first[:parts], second[:parts]), first[parts]]

    scalars = [*(jax.ShapeDtypeStruct((), aval.dtype) for aval in combine.closed.out_avals)]
    scalars.append(jax.ShapeDtypeStruct((), np.dtype(np.int32)))
    return combination(made(jax.make_jaxpr(run)(*scalars, *scalars)))


@lru_cache(maxsize=64)
def first_of_best(largest: bool, value: np.dtype, place: np.dtype) -> Combination:
    """Of two elements and their places, the larger one or the smaller one, or the first; NaNs come before numbers."""

    def run(v: Any, i: Any, w: Any, j: Any) -> list[Any]:
        better, alike = (lax.gt if largest else lax.lt)(v, w), lax.eq(v, w)
        if jnp.issubdtype(value, jnp.floating):
            is_number, other = lax.eq(v, v), lax.eq(w, w)
            better = lax.bitwise_or(better, lax.gt(other, is_number))
            alike = lax.bitwise_or(alike, lax.bitwise_not(lax.bitwise_or(is_number, other)))
        mine = lax.bitwise_or(better, lax.bitwise_and(alike, lax.lt(i, j)))
        return [lax.select(mine, v, w), lax.select(mine, i, j)]

    element = [jax.ShapeDtypeStruct((), dtype) for dtype in (value, place)]
    return combination(made(jax.make_jaxpr(run)(*element, *element)))


_TRIED = 1000


def _are_same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _alike(one: Any, other: Any) -> bool:
    return alike(np.asarray(one), np.asarray(other))


def _drawn(part: Any, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """What this part is in three elements, many times over."""
    if isinstance(part, str):  # no two are at one place
        return np.argsort(rng.random((3, _TRIED)), axis=0).astype(dtype)
    if part is not None:
        return np.full((3, _TRIED), part, dtype)
    if dtype == np.dtype(bool):
        return rng.random((3, _TRIED)) < 0.5
    whole = rng.integers(1, 5, (3, _TRIED))
    return (whole / 2 if jnp.issubdtype(dtype, jnp.floating) else whole).astype(dtype)
