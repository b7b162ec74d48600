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
import jax.numpy as jnp

from jaxpr2triton._compat import close_like
from jaxpr2triton.errors import CompilerBug


def run(jaxpr: Any, *args: Any) -> list[Any]:
    """The outputs of a closed jaxpr for these inputs."""
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)


def traced(function: Callable[..., Any], *args: Any, names: Sequence[str] = ()) -> Any:
    """The program of a function, with what it closes over as constants."""
    return jax.make_jaxpr(_named(function, names))(*args)


def trace(function: Callable[..., Any], *args: Any, names: Sequence[str] = ()) -> tuple[Any, list[Any]]:
    """A program without constants, and the values that became its leading operands.

    `args` are arrays, tracers or abstract values; `names` are what the printed program calls them.
    """
    jaxpr = traced(function, *args, names=names)
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


def retrace(function: Callable[..., Any], *args: Any, names: Sequence[str] = (), results: Sequence[str] = ()) -> Any:
    """A program of a function that closes over nothing; `results` are what its results are called."""
    jaxpr, hoisted = trace(function, *args, names=names)
    if hoisted:
        raise CompilerBug(f"a derived program closes over {len(hoisted)} values")
    return with_result_names(jaxpr, results)


def again(closed: Any, function: Callable[..., Any]) -> Any:
    """The program of a function that does the same as a program: what comes in and goes out has the same names."""
    return retrace(function, *avals(closed), names=argument_names(closed), results=result_names(closed))


def avals(jaxpr: Any) -> list[Any]:
    return [var.aval for var in jaxpr.jaxpr.invars]


def is_differentiable(aval: Any) -> bool:
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def argument_names(jaxpr: Any) -> list[str]:
    """What the inputs are called, as identifiers: `x`, `params_w`."""
    count = len(jaxpr.jaxpr.invars)
    known = jaxpr.jaxpr.debug_info.arg_names or ()
    return identifiers([*known, *[f"arg{i}" for i in range(len(known), count)]][:count])


def result_names(jaxpr: Any) -> list[str]:
    """What the results are called, by the keys and fields that hold them; "" where there is only an order.

        return {"loss": a, "layers": [b, c]}, d    →    layers_0, layers_1, loss, ""
    """
    count = len(jaxpr.jaxpr.outvars)
    paths = jaxpr.jaxpr.debug_info.result_paths
    return [_last_names(path) for path in paths] if isinstance(paths, tuple) and len(paths) == count else [""] * count


def with_result_names(jaxpr: Any, names: Sequence[str]) -> Any:
    """The same program, which says what its results are called; as it is, if there are no names."""
    if not any(names):
        return jaxpr
    info = jaxpr.jaxpr.debug_info._replace(result_paths=tuple(f"result.{name}" if name else "" for name in names))
    return close_like(jaxpr, jaxpr.jaxpr.replace(debug_info=info))


def _last_names(path: str) -> str:
    """`result[0]['layers'][1].w` → `layers_1_w`."""
    steps = re.findall(r"\w+", path.removeprefix("result"))
    first = next((number for number, step in enumerate(steps) if not step.isdigit()), len(steps))
    return "_".join(steps[first:])


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
