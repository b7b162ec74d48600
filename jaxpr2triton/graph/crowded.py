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
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.crowds import Crowds
from jaxpr2triton.graph.nodes import Demand, Place
from jaxpr2triton.graph.reads import ordered_axes
from jaxpr2triton.graph.walking import Choosing, Crowding
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index, of_axis, plain_axis, substitute
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE

ANY = 1 << 31  # the length of an axis that stands for any other


def at_once(walk: Crowding, number: Number, eqn: Eqn, demands: Sequence[Demand]) -> Sequence[Demand]:
    """Where a trial asks for a value: at one place, if it is wanted at too many."""
    if walk.crowds is None:
        return demands
    (out, *_), times = eqn.outvars, walk.crowds.times
    if (again := _times_computed(walk, eqn, demands)) > policy.COMMON.places_in_a_step:
        times[out] = times.get(out, 1) * again
        demands = [(_where_it_is_kept(walk, number, out, demands, walk.crowds), ())]
    for operand in variables(eqn.invars):
        times[operand] = max(times.get(operand, 1), times.get(out, 1))
    return demands


def _times_computed(walk: Crowding, eqn: Eqn, demands: Sequence[Demand]) -> float:
    """How often each element would be computed, about, if it were at each of these places.

    One that is wanted along other axes too is the same once more, named otherwise; a column is a part of the whole.
    """
    row, (out, *_) = TABLE.get(eqn.primitive.name), eqn.outvars
    is_computed = isinstance(row, Pointwise | Reduction) or eqn.primitive.name == "dot_general"
    if len(demands) <= policy.COMMON.places_in_a_step or not is_computed or waits_for(walk, out) is None:
        return 1
    if _instructions(walk.jaxpr)[out] <= policy.COMMON.read_in_a_step:
        return 1
    elements: dict[Place, int] = {}
    for place, _ in demands:
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


def _where_it_is_kept(walk: Crowding, number: Number, out: Var, demands: Sequence[Demand], crowds: Crowds) -> Place:
    (first, *_) = places = [place for place, _ in demands]
    indices = [set(each) for each in zip(*places)]
    crowds.dims[out] = dims = tuple(d for d, of in enumerate(indices) if len(of) > 1 or plain_axis(first[d]) is None)
    written = written_along(walk, number, out, dims, demands)
    walk.reduced_axes.update(axis for index in written for axis in index.axes)
    return tuple(written[dims.index(d)] if d in dims else index for d, index in enumerate(first))


def written_along(
    walk: Choosing, number: Number, operand: Atom, dims: Sequence[int], demands: Sequence[Demand]
) -> Place:
    """Where the lanes of a step write a value that they read again: along the axes at which it is read, if they can.

    Lanes write at once, and read behind a barrier. So other than for a sum, these axes may be the same.
    """
    places = [place for place, _ in demands]
    beside = frozenset(axis for place in places for d, i in enumerate(place) if d not in dims for axis in i.axes)
    hints = [_read_along([place[d] for place in places], operand.aval.shape[d]) for d in dims]
    return walk.choose.reduction(number, operand, dims, beside | walk.choose.steps, hints)


def _read_along(indices: Sequence[Index], size: int) -> Axis | None:
    """The axis, as long as a dimension is, along which that is read."""
    terms = [atom for index in indices for atom, times in index.terms if times == 1]
    return next((atom for atom in terms if isinstance(atom, Axis) and atom.size == size), None)
