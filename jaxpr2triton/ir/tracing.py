"""Jaxprs as functions, and functions as jaxprs: the few moves that the rest of this folder is made of.

Every program here is a closed jaxpr *without* constants: what a function closes over becomes leading operands, so that
no array, and above all no tracer, hides in a program that outlives its trace.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.errors import CompilerBug

# Calls that mean no more than their body. Custom derivative rules and checkpoints mean more, and stay.
TRANSPARENT = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "fused": "jaxpr",
}


def run(jaxpr: Any, *args: Any) -> list[Any]:
    """The outputs of a closed jaxpr for these inputs."""
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


def trace(function: Callable[..., Any], *args: Any, names: Sequence[str] = ()) -> tuple[Any, list[Any]]:
    """A program without constants, and the values that became its leading operands.

    `args` are arrays, tracers or abstract values; `names` are what the printed program calls them.
    """
    jaxpr = jax.make_jaxpr(_named(function, names))(*args)
    hoisted: list[Any] = []
    while jaxpr.consts:
        constants, count = list(jaxpr.consts), len(jaxpr.consts)
        inner = jaxpr.jaxpr
        names = [f"c{i}" for i in range(len(constants) + len(hoisted))] + argument_names(jaxpr)[len(hoisted) :]

        def explicit(*values: Any, inner: Any = inner, count: int = count) -> list[Any]:
            return jax.core.eval_jaxpr(inner, values[:count], *values[count:])

        jaxpr = jax.make_jaxpr(_named(explicit, names))(
            *[var.aval for var in jaxpr.jaxpr.constvars], *[var.aval for var in jaxpr.jaxpr.invars]
        )
        hoisted = constants + hoisted
    return jaxpr, hoisted


def retrace(function: Callable[..., Any], *args: Any, names: Sequence[str] = ()) -> Any:
    """A program of a function that closes over nothing."""
    jaxpr, hoisted = trace(function, *args, names=names)
    if hoisted:
        raise CompilerBug(f"a derived program closes over {len(hoisted)} values")
    return jaxpr


def avals(jaxpr: Any) -> list[Any]:
    return [var.aval for var in jaxpr.jaxpr.invars]


def is_differentiable(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def argument_names(jaxpr: Any) -> list[str]:
    """What the inputs are called, as identifiers: `x`, `params_w`."""
    count = len(jaxpr.jaxpr.invars)
    known = jaxpr.jaxpr.debug_info.arg_names or ()
    return identifiers([*known, *[f"arg{i}" for i in range(len(known), count)]][:count])


def identifiers(names: Sequence[str | None]) -> list[str]:
    """Each name as an identifier, no two alike."""
    taken: set[str] = set()
    result = []
    for position, name in enumerate(names):
        clean = re.sub(r"\W+", "_", name or "").strip("_") or f"arg{position}"
        base = clean = f"a{clean}" if clean[0].isdigit() else clean
        copy = 1
        while clean in taken or keyword.iskeyword(clean):
            copy += 1
            clean = f"{base}_{copy}"
        taken.add(clean)
        result.append(clean)
    return result


def flatten(jaxpr: Any) -> Any:
    """The same program without transparent calls: `jit { y = f x }` becomes `y = f x`."""

    def evaluate(inner: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip([*inner.constvars, *inner.invars], [*consts, *args]))
        for eqn in inner.eqns:
            values = [read(env, atom) for atom in eqn.invars]
            key = TRANSPARENT.get(eqn.primitive.name)
            if key is None:
                env.update(zip(eqn.outvars, bind_equation(eqn, values)))
            else:
                body = eqn.params[key]
                env.update(zip(eqn.outvars, evaluate(body.jaxpr, body.consts, values)))
        return [read(env, atom) for atom in inner.outvars]

    if not any(eqn.primitive.name in TRANSPARENT for eqn in jaxpr.jaxpr.eqns):
        return jaxpr
    return retrace(lambda *args: evaluate(jaxpr.jaxpr, jaxpr.consts, args), *avals(jaxpr), names=argument_names(jaxpr))


def read(env: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, jex.Literal) else env[atom]


def prune(jaxpr: Any, used_outputs: Sequence[bool], keep: Sequence[bool] | bool = False) -> tuple[Any, list[bool]]:
    """The program of some outputs, with the inputs that they need or that are to be kept; and which these are."""
    inner, used_inputs = pe.dce_jaxpr(jaxpr.jaxpr, list(used_outputs), keep)
    kept = [aval for aval, used in zip(avals(jaxpr), used_inputs) if used]
    names = [name for name, used in zip(argument_names(jaxpr), used_inputs) if used]
    return retrace(lambda *args: jax.core.eval_jaxpr(inner, (), *args), *kept, names=names), list(used_inputs)


def reached(jaxpr: Any, seeds: Sequence[bool]) -> list[bool]:
    """Which outputs may depend on the marked inputs."""
    live = {var for var, seed in zip(jaxpr.jaxpr.invars, seeds) if seed}
    for eqn in jaxpr.jaxpr.eqns:
        if any(not isinstance(atom, jex.Literal) and atom in live for atom in eqn.invars):
            live.update(eqn.outvars)
    return [not isinstance(atom, jex.Literal) and atom in live for atom in jaxpr.jaxpr.outvars]


def _named(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with a signature that tells JAX what to call its arguments."""
    if not names:
        return function

    def named(*args: Any) -> Any:
        return function(*args)

    named.__name__ = getattr(function, "__name__", "program")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in identifiers(names)])
    setattr(named, "__signature__", signature)  # noqa: B010  # functions have no such field for a type checker
    return named
