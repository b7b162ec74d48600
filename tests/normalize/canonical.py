"""What a program computes, whatever its variables are called and in which order its equations stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import jax.extend.core as jex
import numpy as np

from jaxpr2triton._compat import scan_counts_of


def canonical(closed: Any) -> Hashable:
    """Equal for two programs of the same equations.

    b = sin a;  c = cos a in (b, c)    and    d = cos a;  c = sin a in (c, d)
    """
    jaxpr = getattr(closed, "jaxpr", closed)
    known: dict[Any, Hashable] = {
        var: (number, str(var.aval)) for number, var in enumerate((*jaxpr.constvars, *jaxpr.invars))
    }

    def read(atom: Any) -> Hashable:
        return (str(np.asarray(atom.val)), str(atom.aval)) if isinstance(atom, jex.Literal) else known[atom]

    equations: Counter[Hashable] = Counter()
    for eqn in jaxpr.eqns:
        text = hash((eqn.primitive.name, _parameters(eqn), tuple(map(read, eqn.invars))))
        known.update({var: (text, number, str(var.aval)) for number, var in enumerate(eqn.outvars)})
        equations[text] += 1
    return frozenset(equations.items()), tuple(map(read, jaxpr.outvars))


def _parameters(eqn: Any) -> Hashable:
    """Of a scan the counts of its operands: JAX 0.11 wraps their grouping once more whenever it removes dead code."""
    if eqn.primitive.name != "scan":
        return _parameter(eqn.params)
    told = {key: value for key, value in eqn.params.items() if key not in ("ft_in", "ft_out")}
    return _parameter(told), scan_counts_of(eqn.params)


def _parameter(value: Any) -> Hashable:
    match value:
        case jex.ClosedJaxpr() | jex.Jaxpr():
            return canonical(value)
        case tuple() | list():
            return tuple(map(_parameter, value))
        case Mapping():
            return tuple((key, _parameter(value[key])) for key in sorted(value))
        case np.ndarray():
            return value.shape, str(value.dtype), value.tobytes()
    return value.__name__ if hasattr(value, "__name__") else (type(value).__name__, str(value))
