"""What a program computes, whatever its values are called and whichever lines it stands on.

    { lambda ; x:f32[8] w:f32[8]. let y = mul x w; z = sin y in (z,) }
    { lambda ; h:f32[8] u:f32[8]. let a = mul h u; b = sin a in (b,) }     have the same form
    { lambda ; h:f32[8] u:f32[8]. let a = mul u h; b = sin a in (b,) }     has another one

Forms are compared by `==` and can be keys. What cannot be compared, a function say, is equal to nothing but itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any

import jax.extend.core as jex
import numpy as np


def form_of(jaxpr: Any, instead: Mapping[int, Mapping[str, Any]] = MappingProxyType({})) -> Hashable:
    """The form of an open or closed jaxpr; as long as the jaxpr lives it means the same.

    `instead` are the parameters that some equations, known by their ids, are taken to have.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    numbers = {var: number for number, var in enumerate((*inner.constvars, *inner.invars))}
    types = tuple(var.aval for var in numbers)

    def read(atom: Any) -> Hashable:
        return (_value(atom.val), atom.aval) if isinstance(atom, jex.Literal) else numbers[atom]

    eqns = []
    for eqn in inner.eqns:
        operands = tuple(map(read, eqn.invars))
        numbers.update((var, len(numbers) + place) for place, var in enumerate(eqn.outvars))
        given = instead.get(id(eqn), eqn.params)
        params = tuple((key, _value(given[key])) for key in sorted(given)) if given else ()
        eqns.append((eqn.primitive, params, operands, tuple(var.aval for var in eqn.outvars)))
    consts = tuple(map(id, getattr(jaxpr, "consts", ())))
    return types, consts, tuple(eqns), tuple(map(read, inner.outvars))


def _value(value: Any) -> Hashable:
    """A literal or a parameter: 1, 1.0 and True are different ones, and so are 0.0 and -0.0."""
    match value:
        case None | bool() | str():
            return value.__class__, value
        case jex.ClosedJaxpr() | jex.Jaxpr():
            return form_of(value)
        case tuple() | list():
            return value.__class__, tuple(map(_value, value))
        case dict():
            return dict, tuple((key, _value(value[key])) for key in sorted(value, key=str))
        case int() | float() | complex() | np.ndarray() | np.generic():
            array = np.asarray(value)
            return value.__class__, array.dtype.str, array.shape, array.tobytes()
    try:
        return value.__class__, hash(value), value
    except TypeError:
        return id(value)
