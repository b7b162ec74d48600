"""Results of two sides that are reduced right away, by the programs that make them.

    y[c,r,n] = Σ_k x[c,r,k] w[k,n]       chunks c of rows r
    p[c,n]   = Σ_r y[c,r,n]²             a program has all rows of a chunk: held r

    d[i,j] = Σ_k (x[k,i] - y[k,j])²
    p[i,j] = d[i,j] - log Σ_j exp(…)     a program has all columns: held j
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxpr2triton.graph.nodes import Reduce, operands_of
from jaxpr2triton.graph.sides import Axes, Sides, is_small, sides_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import sources


@dataclass(frozen=True)
class Summed:
    """What a kernel makes of two sides, and which axes of that a program has whole."""

    made: tuple[Reduce, ...]  # the sums of what two sides make
    held: Axes  # of one side
    sides: Sides

    @property
    def size(self) -> int:
        return math.prod(axis.size for axis in self.held)


def summed_of(space: Space, unrolled: int) -> Summed | None:
    """What of its results a kernel reduces; None if nothing, or more than one side. `unrolled` as in `sides_of`."""
    if space.steps:
        return None
    reductions = [node for node in space.graph.of_kind(Reduce) if not is_small(node, unrolled)]
    above = sources(space.graph.nodes, operands_of, reductions)
    made = dict.fromkeys(node for node in reductions if len(above[node]) == 1)
    held: Axes = frozenset(axis for node in reductions if node not in made for axis in node.over)
    if not held or not held >= space.inner or not all(held <= node.axes for node in made):
        return None
    results = frozenset().union(*(node.axes for node in made))
    if any(not results.issuperset(node.axes) for node in space.graph.of_kind(Reduce)):
        return None  # a product of what was made with something else
    return _of_one_side(space, tuple(made), held, unrolled)


def _of_one_side(space: Space, made: tuple[Reduce, ...], held: Axes, unrolled: int) -> Summed | None:
    roots = frozenset(space.axes) | held
    found: Sides | None = None
    for node in made:
        sides = sides_of(node, roots, unrolled)
        if sides is None or not sides.rows or not sides.columns or (found is not None and not sides.fits(found)):
            return None
        if not held.isdisjoint(node.over) or not (held <= sides.rows or held <= sides.columns):
            return None
        found = found or sides
    return Summed(made, held, found) if found is not None else None
