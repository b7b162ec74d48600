"""Programs put together of equations; no other module calls the constructors of jaxprs.

What comes out is as valid as what came in: each variable is defined once, effects are those of the equations, and every
equation keeps the user's line and its context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.extend.core as jex
from jax.extend.core import primitives

from jaxpr2triton._compat import Here, close_like, closed_with, inside_of, is_high_level
from jaxpr2triton.ir.tracing import identifiers

Substitution = Mapping[Any, Any]  # variable → the atom that is read in its place


def variable(like: Any) -> Any:
    """A new variable of the same type as an atom."""
    return jex.Var(like.aval)


def now(atom: Any, instead: Substitution) -> Any:
    """The atom itself, or what stands in its place."""
    return atom if isinstance(atom, jex.Literal) else instead.get(atom, atom)


def reading(eqn: Any, instead: Substitution) -> Any:
    """The equation with other operands; the same object, if it reads none of those variables."""
    for atom in eqn.invars:
        if not isinstance(atom, jex.Literal) and atom in instead:
            return eqn.replace(invars=[now(atom, instead) for atom in eqn.invars])
    return eqn


def after(eqn: Any, primitive: Any, operands: Sequence[Any], results: Sequence[Any], **params: Any) -> Any:
    """An equation without effects, of the same line as `eqn`."""
    return jex.new_jaxpr_eqn(list(operands), list(results), primitive, params, set(), source_info=eqn.source_info)


def in_place_of(eqn: Any, other: Any, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """The other equation about other variables, of the same line as `eqn`."""
    return other.replace(invars=list(operands), outvars=list(results), source_info=eqn.source_info)


def calling(eqn: Any, closed: Any) -> Any:
    """A call of this program in the place of an equation with the same operands and results."""
    return eqn.replace(primitive=primitives.closed_call_p, params={"call_jaxpr": closed})


def with_bodies(eqn: Any, change: Callable[[Any], Any]) -> Any:
    """The equation with other jaxprs in its parameters; the same object, if they stay the objects that they are."""
    if not any(True for _ in jex.jaxprs_in_params(eqn.params)):
        return eqn
    params = {key: _changed(value, change) for key, value in eqn.params.items()}
    same = all(params[key] is value for key, value in eqn.params.items())
    return eqn if same else eqn.replace(params=params)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, jex.ClosedJaxpr | jex.Jaxpr):
        return change(value)
    if not isinstance(value, tuple | list):
        return value
    items = [_changed(item, change) for item in value]
    if all(new is old for new, old in zip(items, value)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def copied(eqn: Any, operands: Sequence[Any], results: Sequence[Any], here: Here) -> Any:
    """The equation about other variables, in another place."""
    return eqn.replace(invars=list(operands), outvars=list(results), source_info=here.source_info, ctx=here.ctx)


def with_equations(jaxpr: Any, eqns: Sequence[Any], outvars: Sequence[Any] | None = None) -> Any:
    """The same program from outside, made of these equations; `jaxpr` is open or closed.

    Constants that nothing reads any more are gone.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    changes: dict[str, Any] = {"eqns": list(eqns), "effects": _effects_of(inner, eqns)}
    if outvars is not None:
        changes["outvars"] = list(outvars)
    if inner.is_high:
        changes["is_high"] = any(map(is_high_level, eqns))
    if inner is jaxpr and not hasattr(jaxpr, "consts"):
        return inside_of(inner, **changes)
    if not jaxpr.consts:
        return close_like(jaxpr, inside_of(inner, **changes))
    read = {atom for eqn in eqns for atom in eqn.invars if not isinstance(atom, jex.Literal)}
    read.update(atom for atom in outvars or inner.outvars if not isinstance(atom, jex.Literal))
    kept = [(var, const) for var, const in zip(inner.constvars, jaxpr.consts) if var in read]
    made = inside_of(inner, constvars=[var for var, _ in kept], **changes)
    return closed_with(made, [const for _, const in kept])


def excerpt(
    closed: Any, eqns: Sequence[Any], operands: Sequence[Any], results: Sequence[Any], names: Sequence[str]
) -> Any:
    """Some equations of a program as a program of these operands and results, which are called by `names`.

    Nothing is traced: the equations and their variables are the very same.
    """
    inner = closed.jaxpr
    effects = frozenset().union(*(eqn.effects for eqn in eqns))
    called = identifiers(names)
    paths = tuple(f"result.{name}" for name in called[len(operands) :]) or ("",) * len(results)
    info = inner.debug_info._replace(arg_names=tuple(called[: len(operands)]), result_paths=paths)
    made = inner.replace(
        invars=list(operands), eqns=list(eqns), outvars=list(results), effects=effects, debug_info=info
    )
    return closed.replace(jaxpr=made)


def _effects_of(jaxpr: Any, eqns: Sequence[Any]) -> Any:
    """The effects of the equations; those on inputs are the program's own."""
    found: set[Any] = set()
    for eqn in eqns:
        if eqn.effects:
            found.update(eqn.effects)
    return jaxpr.effects if found == set(jaxpr.effects) else found
