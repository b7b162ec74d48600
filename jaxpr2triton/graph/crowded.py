"""What a step of a loop wants at so many places that it had better be computed once, and kept.

v = f(u), w = g(v), and w at i asks for v at i - 1 and i + 1: a chain of n such values asks for the first of them at
n + 1 places, on a grid at some 2 n², and it would be computed at each. One stencil of another is soon done so, in
registers; where a chain is longer, each of its values is written once, and read at all places.

A trial walk through the body finds that out (`graph/loops.py`). It asks for such a value where it would be written, so
that what that is made of is wanted as often as if it were kept: the trial takes as long as the body is. What is only
found elsewhere is not kept, but what it is found in; nor is what no step changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jaxpr2triton import policy
from jaxpr2triton.graph.brought import waits_for
from jaxpr2triton.graph.chooser import Chooser, Number
from jaxpr2triton.graph.demands import Crowds, Demands
from jaxpr2triton.graph.nodes import Demand, Place
from jaxpr2triton.graph.reads import ordered_axes
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index, of_axis, plain_axis, substitute
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

ANY = 1 << 31  # the length of an axis that stands for any other


def at_once(demands: Demands, number: Number, eqn: Eqn, wanted: Sequence[Demand]) -> Sequence[Demand]:
    """Where a trial asks for a value: at one place, if it is wanted at too many."""
    if demands.crowds is None:
        return wanted
    (out, *_), times = eqn.outvars, demands.crowds.times
    if (again := _times_computed(demands, eqn, wanted)) > policy.COMMON.places_in_a_step:
        times[out] = times.get(out, 1) * again
        wanted = [(_where_it_is_kept(demands, number, out, wanted, demands.crowds), ())]
    for operand in variables(eqn.invars):
        times[operand] = max(times.get(operand, 1), times.get(out, 1))
    return wanted


def _times_computed(demands: Demands, eqn: Eqn, wanted: Sequence[Demand]) -> float:
    """How often each element would be computed, about, if it were at each of these places.

    One that is wanted along other axes too is the same once more, named otherwise; a column is a part of the whole.
    """
    row, (out, *_) = TABLE.get(eqn.primitive.name), eqn.outvars
    is_computed = isinstance(row, Pointwise | Reduction) or eqn.primitive.name == "dot_general"
    if len(wanted) <= policy.COMMON.places_in_a_step or not is_computed or waits_for(demands, out) is None:
        return 1
    if _instructions(demands.jaxpr)[out] <= policy.COMMON.read_in_a_step:
        return 1
    elements: dict[Place, int] = {}
    for place, _ in wanted:
        axes = ordered_axes(place)
        names = {axis: of_axis(Axis(str(n), ANY)) for n, axis in enumerate(axes)}
        kind = tuple(substitute(index, names) for index in place)
        elements[kind] = max(elements.get(kind, 0), math.prod(axis.size for axis in axes))
    size = max(out.aval.size, 1)
    return sum(min(many, size) for many in elements.values()) / size


@once
def _instructions(body: Jaxpr) -> Mapping[Var, float]:
    """What an element of each value takes at a place of its own, from what a step is given: more than any, at most."""
    found: dict[Var, float] = {}
    for eqn in body.eqns:
        row = TABLE.get(eqn.primitive.name)
        own = row.weight if isinstance(row, Pointwise) else 0 if isinstance(row, Indexing) else ANY
        whole = own + sum(found.get(var, 0) for var in variables(eqn.invars))
        found.update(dict.fromkeys(eqn.outvars, min(whole, ANY)))
    return found


def _where_it_is_kept(demands: Demands, number: Number, out: Var, wanted: Sequence[Demand], crowds: Crowds) -> Place:
    (first, *_) = places = [place for place, _ in wanted]
    indices = [set(each) for each in zip(*places)]
    crowds.dims[out] = dims = tuple(d for d, of in enumerate(indices) if len(of) > 1 or plain_axis(first[d]) is None)
    written = written_along(demands.choose, number, out, dims, wanted)
    demands.reduced_axes.update(axis for index in written for axis in index.axes)
    return tuple(written[dims.index(d)] if d in dims else index for d, index in enumerate(first))


def written_along(
    choose: Chooser, number: Number, operand: Atom, dims: Sequence[int], wanted: Sequence[Demand]
) -> Place:
    """Where the lanes of a step write a value that they read again: along the axes at which it is read, if they can.

    Lanes write at once, and read behind a barrier. So other than for a sum, these axes may be the same.
    """
    places = [place for place, _ in wanted]
    beside = frozenset(axis for place in places for d, i in enumerate(place) if d not in dims for axis in i.axes)
    hints = [_read_along([place[d] for place in places], operand.aval.shape[d]) for d in dims]
    return choose.reduction(number, operand, dims, beside | choose.steps, hints)


def _read_along(indices: Sequence[Index], size: int) -> Axis | None:
    """The axis, as long as a dimension is, along which that is read."""
    terms = [atom for index in indices for atom, times in index.terms if times == 1]
    return next((atom for atom in terms if isinstance(atom, Axis) and atom.size == size), None)
