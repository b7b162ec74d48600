"""Contractions of which nothing but a sum is read: their terms are added before the lanes are.

a = dot_general x u
b = dot_general h w         →       tl.sum(x * u + h * w, axis=0)
c = add a b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from jaxpr2triton.ir.index import ZERO, Axis
from jaxpr2triton.rules.nodes import Demand, Node, Reduce, axes_of

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


def build(walk: Any, eqn: Any, reads: Sequence[Any]) -> Node | None:
    """One sum of the terms of all, if an equation sums contractions along the same axes."""
    if eqn.primitive.name not in SUMS or (found := _terms_of_sum(walk, reads)) is None:
        return None
    first, terms, over = found
    axes, dtype, positions = axes_of(terms) - frozenset(over), np.dtype(eqn.outvars[0].aval.dtype), (ZERO,) * len(terms)
    node: Node = walk.make(
        ("reduce", id(eqn), terms, over), lambda n: Reduce(n, axes, dtype, first, terms, over, positions)
    )
    return node


def _terms_of_sum(walk: Any, reads: Sequence[Any]) -> tuple[Any, tuple[Node, ...], tuple[Axis, ...]] | None:
    """The equation of the first contraction, the terms of all, and the axes they are summed along."""
    parts = [_terms(walk, *read) for read in reads]
    if None in parts:
        return None
    (eqn, first, over), (_, second, others) = parts
    if not over or set(over) != set(others) or axes_of(first) != axes_of(second):
        return None
    return eqn, (*first, *second), over


def _terms(walk: Any, atom: Any, demand: Demand) -> Any:
    eqn = None if isinstance(atom, jex.Literal) else walk.summed.get(atom)
    if eqn is None or (atom, demand) in walk.nodes or (atom, demand) not in walk.reads:
        return None
    reads = walk.reads[atom, demand]
    if eqn.primitive.name in SUMS:
        return _terms_of_sum(walk, reads)
    asked, over, _ = reads
    return eqn, tuple(walk.term(left, right, np.dtype(atom.aval.dtype)) for left, right in asked), over
