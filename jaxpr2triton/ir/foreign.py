"""What primitives that no table knows are made of: the JAX functions behind them, as programs.

total_p.def_impl(lambda x, *, axis: jnp.sum(x, axis))

b = total[axis=0] a   →   { lambda ; a. let b = reduce_sum[axes=(0,)] a in (b,) }
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import jax
from jax.extend.core import primitives

from jaxpr2triton._compat import context_of, function_behind, is_familiar, settings_around, without_line
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, equations, frozen, made

DEEPEST = 100  # implementations within implementations
NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def implementation(eqn: Eqn, in_loop: bool = True) -> Closed | WhyNot | None:
    """The program that computes what an equation does, why there is none, or None if nobody has written one in JAX.

    It is that of the JAX function that the primitive is lowered by, because that is what `jax.jit` runs; if it is
    lowered otherwise, that of the implementation by which it runs outside of `jit`. Its equations have no lines.
    """
    asked = _asked(eqn)
    closed = _found(asked)
    if isinstance(closed, Closed) and _comes_back(closed.jaxpr, (asked,)):
        return WhyNot(f"the implementation of `{eqn.primitive.name}` does no more than run it")
    return closed


@dataclass(frozen=True)
class _Asked:
    """An equation, as good as any other one that is equal to it in this."""

    primitive: Any
    params: Hashable  # None, if they have no hash
    types: tuple[Any, ...]
    settings: tuple[Hashable, ...]
    eqn: Eqn = field(compare=False)


def _asked(eqn: Eqn) -> _Asked:
    types = tuple([(var.aval, getattr(var.aval, "weak_type", False)) for var in (*eqn.invars, *eqn.outvars)])
    try:
        params: Hashable = frozen(eqn.params)
        hash(params)
    except TypeError:
        params = None
    return _Asked(eqn.primitive, params, types, settings_around(eqn), eqn)


def _found(asked: _Asked) -> Closed | WhyNot | None:
    return _traced(asked.eqn) if asked.params is None else _remembered(asked)


@lru_cache(maxsize=512)
def _remembered(asked: _Asked) -> Closed | WhyNot | None:
    return _traced(asked.eqn)


def _traced(eqn: Eqn) -> Closed | WhyNot | None:
    function, name = function_behind(eqn, not is_familiar(eqn.primitive)), eqn.primitive.name
    if function is None or eqn.effects:
        return None
    try:
        with context_of(eqn):
            closed = made(jax.make_jaxpr(_listed(function, eqn))(*[atom.aval for atom in eqn.invars]))
    except NEEDS_VALUES:
        return WhyNot(f"the implementation of `{name}` needs the values of its operands, so that it cannot be traced")
    except Exception as problem:  # somebody else's function may raise anything
        said = ": ".join([type(problem).__name__, *str(problem).splitlines()[:1]])
        return WhyNot(f"the implementation of `{name}` cannot be traced: {said}")
    if closed.effects:
        return WhyNot(f"the implementation of `{name}` has side effects")
    if [_type(aval) for aval in closed.out_avals] != [_type(var.aval) for var in eqn.outvars]:
        return WhyNot(f"the implementation of `{name}` returns other types than the primitive")
    return cast(Closed, _without_lines(closed))


def _type(aval: Any) -> tuple[Any, ...]:
    return getattr(aval, "shape", None), getattr(aval, "dtype", None)


def _listed(function: Callable[..., Any], eqn: Eqn) -> Callable[..., list[Any]]:
    """The function with a list of results, of the very types of the equation's, where only weak types are wrong."""

    def listed(*operands: Any) -> list[Any]:
        results = function(*operands)
        results = list(results) if eqn.primitive.multiple_results else [results]
        return [_weak_or_not(result, var.aval) for result, var in zip(results, eqn.outvars, strict=True)]

    return listed


def _weak_or_not(value: Any, aval: Any) -> Any:
    got = jax.typeof(value)
    weak = getattr(aval, "weak_type", None)
    if _type(got) != _type(aval) or got.weak_type == weak:
        return value
    return primitives.convert_element_type_p.bind(value, new_dtype=aval.dtype, weak_type=weak, sharding=None)


def _without_lines(jaxpr: Any) -> Any:
    eqns = getattr(jaxpr, "jaxpr", jaxpr).eqns
    return build.with_equations(jaxpr, [without_line(build.with_bodies(eqn, _without_lines)) for eqn in eqns])


def _comes_back(jaxpr: Jaxpr, asked: tuple[_Asked, ...]) -> bool:
    """Whether one of these is in a jaxpr, or in what its equations are made of; or whether there is no end to those."""
    for eqn in equations(jaxpr):
        if is_familiar(eqn.primitive) and all(eqn.primitive is not each.primitive for each in asked):
            continue
        this = _asked(eqn)
        if this in asked or len(asked) > DEEPEST:
            return True
        inner = _found(this)
        if isinstance(inner, Closed) and _comes_back(inner.jaxpr, (*asked, this)):
            return True
    return False
