"""What a program computes, whatever its variables are called and in which order its equations stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import jax.extend.core as jex
import numpy as np


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
        text = hash((eqn.primitive.name, _parameter(eqn.params), tuple(map(read, eqn.invars))))
        known.update({var: (text, number, str(var.aval)) for number, var in enumerate(eqn.outvars)})
        equations[text] += 1
    return frozenset(equations.items()), tuple(map(read, jaxpr.outvars))


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
