"""An associative scan as one equation for each of its results: `y = scanned[axis=0 combine=C output=1] a b`.

Along the axis, each element of the result is that of all elements up to it (in reverse: from it on), combined by C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir import batched
from jaxpr2triton.ir.jaxprs import Atom, Closed, Jaxpr, Literal, Var, jaxprs_in, made


@dataclass(frozen=True)
class Combination:
    """What combines two elements, which may have several parts: a program of scalars, all left ones first.

    Two are equal if they are written alike.
    """

    text: str
    closed: Closed = field(compare=False)

    @property
    def parts(self) -> int:
        return len(self.closed.out_avals)

    @property
    def primitives(self) -> list[str]:
        """What it is made of."""
        return [eqn.primitive.name for eqn in self.closed.jaxpr.eqns]

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def combination(closed: Closed) -> Combination:
    return Combination(str(closed), closed)


def combined(combine: Combination, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """Elements of arrays of one shape, each with its counterpart."""
    inner = combine.closed.jaxpr
    if any(True for eqn in inner.eqns for _ in jaxprs_in(eqn)):
        return _with_calls(inner, [*left, *right])
    env: dict[Var, Any] = dict(zip(inner.invars, [*left, *right]))

    def read(atom: Atom) -> Any:
        if not isinstance(atom, Literal):
            return env[atom]
        return lax.broadcast_in_dim(np.asarray(atom.val, atom.aval.dtype)[()], left[0].shape, ())

    for eqn in inner.eqns:
        env.update(zip(eqn.outvars, bind_equation(eqn, list(map(read, eqn.invars)))))
    return list(map(read, inner.outvars))


def _with_calls(inner: Jaxpr, values: Sequence[Any]) -> list[Any]:
    """The same where scalars are handed to calls, which may have derivatives of their own."""

    def run(*args: Any) -> list[Any]:
        return jax.core.eval_jaxpr(inner, (), *args)  # type: ignore[arg-type]

    for _ in range(np.ndim(values[0])):
        run = jax.vmap(run)
    return run(*values)


def only_valid(combine: Combination) -> Combination:
    """With one more part, which says of an element whether it is one; what is none changes nothing."""
    parts = combine.parts

    def run(*args: Any) -> list[Any]:
        left, right = args[: parts + 1], args[parts + 1 :]
        both = combined(combine, left[:parts], right[:parts])
        found = [lax.select(left[parts], one, other) for one, other in zip(both, right)]
        return [*found, lax.bitwise_or(left[parts], right[parts])]

    scalars = [*(jax.ShapeDtypeStruct((), aval.dtype) for aval in combine.closed.out_avals)]
    scalars.append(jax.ShapeDtypeStruct((), np.dtype(bool)))
    return combination(made(jax.make_jaxpr(run)(*scalars, *scalars)))


@lru_cache(maxsize=256)
def is_associative(combine: Combination) -> bool:
    """Whether it does not matter which elements are combined first, of some that are few, so that many are equal."""
    rng, parts = np.random.default_rng(0), combine.parts
    triples = [[_some(aval.dtype, rng) for aval in combine.closed.out_avals] for _ in range(3)]

    def both(*args: Any) -> tuple[list[Any], list[Any]]:
        a, b, c = (args[n * parts : (n + 1) * parts] for n in range(3))
        return combined(combine, combined(combine, a, b), c), combined(combine, a, combined(combine, b, c))

    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        one, other = jax.jit(both)(*(part for triple in triples for part in triple))
    return all(map(alike, map(np.asarray, one), map(np.asarray, other)))


def _some(dtype: Any, rng: np.random.Generator) -> np.ndarray:
    if dtype == np.dtype(bool):
        return rng.random(1000) < 0.5
    low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) else -2
    whole = rng.integers(low, 3, 1000)
    return (whole / 2 if jnp.issubdtype(dtype, jnp.floating) else whole).astype(dtype)


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    if not jnp.issubdtype(one.dtype, jnp.floating):
        return bool((one == other).all())
    digits = 64 * float(jnp.finfo(one.dtype).eps)
    return bool(np.allclose(one.astype(np.float64), other.astype(np.float64), digits, digits, equal_nan=True))


scanned_p = jex.Primitive("scanned")


def _run(*operands: Any, combine: Combination, axis: int, output: int, reverse: bool) -> Any:
    def fn(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return combined(combine, left, right)

    return lax.associative_scan(fn, list(operands), axis=axis, reverse=reverse)[output]


@scanned_p.def_impl
def _impl(*operands: Any, combine: Combination, axis: int, output: int, reverse: bool) -> Any:
    return jax.jit(lambda *args: _run(*args, combine=combine, axis=axis, output=output, reverse=reverse))(*operands)


@scanned_p.def_abstract_eval
def _aval(*operands: Any, combine: Combination, axis: int, output: int, reverse: bool) -> Any:
    return operands[output]


mlir.register_lowering(scanned_p, mlir.lower_fun(_run, multiple_results=False))
batched.define(scanned_p, along="axis")
