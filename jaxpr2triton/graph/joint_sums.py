"""Contractions of which nothing but a sum is read: their terms are added before the lanes are.

a = dot_general x u
b = dot_general h w         →       tl.sum(x * u + h * w, axis=0)
c = add a b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from jaxpr2triton.graph.nodes import Demand, Node, Reduce, axes_of
from jaxpr2triton.ir.index import ZERO, Axis
from jaxpr2triton.ir.once import once

SUMS = ("add", "add_any")


@once
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


# The equation of the first contraction, the terms of all, and the axes they are summed along.
Terms = tuple[Any, tuple[Node, ...], tuple[Axis, ...]]


def _terms_of_sum(walk: Any, reads: Sequence[Any]) -> Terms | None:
    """The terms of all contractions below a sum, which may be as deep as the program is long: so no recursion."""
    found: dict[Any, Terms | None] = {}
    stack = _values(reads)[::-1]
    while stack:
        read = stack[-1]
        eqn = None if read in found else _waiting(walk, *read)
        inner = walk.reads[read] if eqn is not None and eqn.primitive.name in SUMS else ()
        missing = [each for each in _values(inner) if each not in found]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if eqn is None:
            found.setdefault(read, None)
            continue
        found[read] = _added(found, inner) if inner else _terms(walk, eqn, read[1])
        if found[read] is None:
            walk.apart.add(read)
    return _added(found, reads)


def _values(reads: Sequence[Any]) -> list[Any]:
    return [read for read in reads if not isinstance(read[0], jex.Literal)]


def _waiting(walk: Any, atom: Any, demand: Demand) -> Any:
    """The equation of what was left for the sum that reads it, and is not made yet."""
    eqn, read = walk.summed.get(atom), (atom, demand)
    return None if read in walk.nodes or read not in walk.reads or read in walk.apart else eqn


def _terms(walk: Any, eqn: Any, demand: Demand) -> Terms:
    out = eqn.outvars[0]
    asked, over, _ = walk.reads[out, demand]
    return eqn, tuple(walk.term(left, right, np.dtype(out.aval.dtype)) for left, right in asked), over


def _added(found: Mapping[Any, Terms | None], reads: Sequence[Any]) -> Terms | None:
    """The terms of two operands together."""
    if len(_values(reads)) < len(reads):
        return None
    first, second = (found[read] for read in reads)
    if first is None or second is None:
        return None
    (eqn, terms, over), (_, more, others) = first, second
    if not over or set(over) != set(others) or axes_of(terms) != axes_of(more):
        return None
    return eqn, (*terms, *more), over
