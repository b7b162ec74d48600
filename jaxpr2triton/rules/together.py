"""Contractions of which nothing but a sum is read: their terms are added before the lanes are.

a = dot_general x u
b = dot_general h w         →       tl.sum(x * u + h * w, axis=0)
c = add a b
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax.extend.core as jex
import numpy as np

SUMS = ("add", "add_any")


def only_summed(jaxpr: Any) -> dict[Any, Any]:
    """Results of contractions, and of sums of those, that one sum reads and nothing else → the equation of each.

    Sums of 16 bits are rounded one by one, as JAX does.
    """
    reads = Counter(atom for eqn in jaxpr.eqns for atom in eqn.invars if not isinstance(atom, jex.Literal))
    reads.update(atom for atom in jaxpr.outvars if not isinstance(atom, jex.Literal))
    found: dict[Any, Any] = {}
    summed: set[Any] = set()
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        if name not in (*SUMS, "dot_general"):
            continue
        out: Any = eqn.outvars[0]
        if np.dtype(out.aval.dtype).itemsize < 4:
            continue
        if out in summed and reads[out] == 1:
            found[out] = eqn
        if name in SUMS:
            summed.update(a for a in eqn.invars if not isinstance(a, jex.Literal) and a.aval.shape == out.aval.shape)
    return found
