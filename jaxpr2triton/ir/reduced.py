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

from jaxpr2triton._compat import called_jaxpr, operands_of_call
from jaxpr2triton.ir import evaluate
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


def monoid_of(starts: Sequence[Any], function: Any) -> tuple[Combination, Empty]:
    """What a `reduce` of JAX's combines elements by, and begins with."""
    closed = made(function) if hasattr(function, "jaxpr") else made(jex.ClosedJaxpr(function, ()))
    avals = closed.in_avals[: len(starts)]
    empty = tuple(aval.dtype.type(start) for start, aval in zip(starts, avals, strict=True))
    return combination(_without_calls(closed)), empty


def _without_calls(closed: Closed) -> Closed:
    """The program of scalars with all that it calls written out."""

    def once(closed: Closed) -> Closed:
        inner = closed.jaxpr

        def evaluated(*args: Any) -> list[Any]:
            env = dict(zip(inner.invars, args))
            evaluate.run(inner.eqns, env, _called)
            return [evaluate.read(env, atom) for atom in inner.outvars]

        return made(jax.make_jaxpr(evaluated)(*(var.aval for var in inner.invars)))

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


@lru_cache(maxsize=256)
def broken(combine: Combination, empty: Empty) -> frozenset[Law]:
    """The laws that do not hold; none if all seem to.

    It is tried with positive numbers, of few values so that many are equal: weights and counts are such, and where a
    function is of no use for others it need not hold for these.
    """
    rng = np.random.default_rng(0)
    parts = len(empty)
    samples = [[_some(each.dtype, rng) for each in empty] for _ in range(3)]
    nothing = [np.broadcast_to(each, (_TRIED,)) for each in empty]

    def both(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        return combined(combine, list(one), list(other))

    def tried(*args: Any) -> list[tuple[list[Any], list[Any]]]:
        a, b, c, e = (list(args[n * parts : (n + 1) * parts]) for n in range(4))
        ordered = both(both(a, b), c), both(a, both(b, c))
        return [(both(e, a), a), (both(a, e), a), ordered, (both(a, b), both(b, a))]

    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        found = jax.jit(tried)(*(part for each in (*samples, nothing) for part in each))
    laws = zip((Law.NEUTRAL, Law.NEUTRAL, Law.ASSOCIATIVE, Law.COMMUTATIVE), found)
    return frozenset(law for law, (one, other) in laws if not all(map(_alike, one, other)))


_TRIED = 1000


def _alike(one: Any, other: Any) -> bool:
    return alike(np.asarray(one), np.asarray(other))


def _some(dtype: Any, rng: np.random.Generator) -> np.ndarray:
    if dtype == np.dtype(bool):
        return rng.random(_TRIED) < 0.5
    whole = rng.integers(1, 5, _TRIED)
    return (whole / 2 if jnp.issubdtype(dtype, jnp.floating) else whole).astype(dtype)
