"""A jaxpr in words that do not depend on JAX's version: one equation a line, names in order, bodies indented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.extend.core as jex
import numpy as np

# What is said of an equation, but for its body: what decides what it computes, and only where it is not the usual.
PARAMS = (
    *("axes", "axis", "dimension", "dimensions", "broadcast_dimensions", "permutation", "padding_config"),
    *("start_indices", "limit_indices", "strides", "slice_sizes", "new_dtype", "dimension_numbers", "y", "dims"),
    *("length", "reverse", "name"),
)
HIDDEN: Mapping[str, tuple[Any, ...]] = {"strides": (None,), "reverse": (False,), "dimensions": (None,)}


def printed(closed: Any) -> str:
    """`in a:f32[4]`, a line for each equation, `out b`."""
    return "\n".join(_lines(closed.jaxpr, {}))


def _lines(jaxpr: Any, names: dict[Any, str]) -> Iterator[str]:
    def name(atom: Any) -> str:
        if isinstance(atom, jex.Literal):
            return str(np.asarray(atom.val).item()) if np.ndim(atom.val) == 0 else "array"
        number = len(names)
        letters = "abcdefghijklmnopqrstuvwxyz"
        return names.setdefault(atom, letters[number % 26] + (str(number // 26) if number >= 26 else ""))

    variables = ", ".join(f"{name(v)}:{_type(v)}" for v in (*jaxpr.constvars, *jaxpr.invars))
    yield f"in {variables}".rstrip()
    for eqn in jaxpr.eqns:
        params = [f"{key}={_value(eqn.params[key])}" for key in PARAMS if _told(eqn, key)]
        operands = " ".join(map(name, eqn.invars))
        results = ", ".join(f"{name(v)}:{_type(v)}" for v in eqn.outvars)
        text = f"{eqn.primitive.name}[{' '.join(params)}]" if params else eqn.primitive.name
        yield f"  {results} = {text} {operands}".rstrip()
        for body in jex.jaxprs_in_params(eqn.params):
            yield from (f"    {line}" for line in _lines(getattr(body, "jaxpr", body), names))
    yield f"out {', '.join(map(name, jaxpr.outvars))}"


def _told(eqn: Any, key: str) -> bool:
    return key in eqn.params and eqn.params[key] not in HIDDEN.get(key, ())


def _value(value: Any) -> str:
    if hasattr(value, "_fields"):  # the dimension numbers of a gather
        told = [f"{field}={getattr(value, field)}" for field in value._fields if getattr(value, field)]
        return f"({', '.join(told)})"
    return str(np.dtype(value)) if isinstance(value, np.dtype | type) else str(value).replace(" ", "")


def _type(var: Any) -> str:
    return str(var.aval.str_short(short_dtypes=True))
