"""Fused functions inside of others: what an inner one names holds in it, and all else is as in the outer one.

fuse(lambda x: g(x) + 1), with g = fuse(g)                    →    g is part of the outer function
fuse(lambda x: g(x) + 1), with g = fuse(g, exact_order=True)  →    g stays one equation, and has kernels of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.front.fused import fused_p
from jaxpr2triton.front.options import KERNELS, Settings
from jaxpr2triton.ir import build
from jaxpr2triton.ir.roles import Roles

DEFAULTS = Roles()


def with_options(jaxpr: Any, around: Settings) -> Any:
    """The program with what holds in each fused function in it; those of the options around are part of the program."""
    eqns = getattr(jaxpr, "jaxpr", jaxpr).eqns
    new = [_with_options(eqn, around) for eqn in eqns]
    return jaxpr if all(now is eqn for now, eqn in zip(new, eqns)) else build.with_equations(jaxpr, new)


def _with_options(eqn: Any, around: Settings) -> Any:
    if eqn.primitive is not fused_p:
        return build.with_bodies(eqn, lambda body: with_options(body, around))
    inner = within(eqn.params, around)
    program = with_options(eqn.params["jaxpr"], inner)
    params = {"jaxpr": program, **vars(inner)}
    params["roles"] = replace(inner.roles, apart=_otherwise(inner, around))
    return eqn.replace(params={**eqn.params, **params})


def within(params: Mapping[str, Any], around: Settings) -> Settings:
    """What holds in a fused function: what it names itself, and for the rest what holds around it."""
    own, outer = params["roles"], around.roles
    named = {each.name for each in fields(own) if getattr(own, each.name) != getattr(DEFAULTS, each.name)}
    function = own.function if "asked" in named else outer.function
    options = {name: getattr(own if name in named else outer, name) for name in _OPTIONS}
    backend = own.backend if own.backend != "auto" else around.backend
    if around.backend == KERNELS and backend != "xla":
        backend = KERNELS
    roles = Roles(function, **options, backend=own.backend)
    return Settings(backend, params["strict"] or around.strict, roles, params["target"] or around.target)


_OPTIONS = ("asked", "contractions", "checkpoint", "exact_order", "schedule", "schedules")


def _otherwise(inner: Settings, around: Settings) -> tuple[str, ...]:
    """What is otherwise than around, as a user writes it."""
    # a checkpoint has had its say when a derivative was taken, and schedules are of single kernels
    names = [name for name in _OPTIONS if name not in ("checkpoint", "schedules")]
    pairs = [(name, getattr(inner.roles, name), getattr(around.roles, name)) for name in names]
    pairs += [(name, getattr(inner, name), getattr(around, name)) for name in ("backend", "strict")]
    return tuple(_said(name, here) for name, here, there in pairs if here != there)


def _said(name: str, value: Any) -> str:
    if name == "asked":
        roles = {f"{each.kernel}.{each.axis}".lstrip("."): str(each.role) for each in value}
        return f"roles={roles}"
    return f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"


def all_of(jaxpr: Any) -> Mapping[str, Any] | None:
    """The parameters of the fused function that a program is all of."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    (eqn, *others) = inner.eqns or (None,)
    if eqn is None or others or list(inner.outvars) != list(eqn.outvars):
        return None
    if eqn.primitive is fused_p:
        found: Mapping[str, Any] = eqn.params
        return found
    bodies = list(jex.jaxprs_in_params(eqn.params))
    return all_of(bodies[0]) if eqn.primitive.name in ("jit", "pjit") and len(bodies) == 1 else None
