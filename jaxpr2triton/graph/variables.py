"""A long body of a loop over small arrays, each element of which may be a variable.

    r:f32[3,3] = …; a = r[:, 0] * r[:, 1]; b = r[2] + r[::-1, 0]

As tiles, r is computed once for each way in which it is read: at [k, 0], [k, 1], [2, k] and [2 - k, 0], and so is all
that it is made of. As variables it is computed nine times at most, however it is read, and no two lanes ever meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Compute, Lookup, Place, Take, axes_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.index import Axis, Index, computed_in, constant, of_axis, substitute
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.policy import Policy


def as_variables(space: Space, policy: Policy) -> frozenset[Axis]:
    """The axes for each index of which a value may have a variable: where tiles would be more, or too many; or none."""
    computes, cuts = list(space.graph.of_kind(Compute)), policy.cuts
    if not space.steps or len(computes) <= cuts.steps:
        return frozenset()
    places: dict[Var, set[Place]] = {}
    for node in computes:
        places.setdefault(node.eqn.outvars[0], set()).add(node.place)
    axes = _whole(space) - _alike(space, places.values())
    if not space.swept_axes.isdisjoint(axes) or any(axis.size > numbers.COMMON.small_state for axis in axes):
        return frozenset()
    count = sum(_looked_through(node, axes) for node in space.graph.of_kind((Take, Lookup)))
    count += sum(len(_elements(where, axes)) for where in places.values())
    fewer = count <= len(computes) or len(computes) > cuts.steps_of_loops
    return axes if fewer and count <= cuts.variables_of_loops else frozenset()


def _looked_through(node: Take | Lookup, axes: frozenset[Axis]) -> int:
    """The variables that one of a computed place is chosen from."""
    sizes = [axis.size for axis, index in node.at if axis in axes and any(computed_in(index))]
    return math.prod(sizes) if sizes else 0


def _whole(space: Space) -> frozenset[Axis]:
    """The axes that one program has whole, but for the steps of loops."""
    shared_out = frozenset(space.axes) - space.inner
    return axes_of(space.graph.nodes) - shared_out - space.steps


def _alike(space: Space, places: Iterable[set[Place]]) -> frozenset[Axis]:
    """The axes of results along which all elements are treated alike, as in a batch: lanes, with variables each."""
    found = set(space.axes)
    for where in places:
        for indices in map(set, zip(*where)):
            if len(indices) > 1 or indices != {of_axis(axis) for index in indices for axis in index.axes}:
                found.difference_update(axis for index in indices for axis in index.axes)
    return frozenset(found)


def _elements(places: Iterable[Place], axes: frozenset[Axis]) -> set[Place]:
    """The places for all values of these axes."""
    return {each for place in places for each in itertools.product(*(_values(index, axes) for index in place))}


def _values(index: Index, axes: frozenset[Axis]) -> Iterator[Index]:
    within = sorted(index.axes & axes, key=lambda axis: axis.name)
    for each in itertools.product(*(range(axis.size) for axis in within)):
        fixed: Mapping[Axis, Index] = dict(zip(within, map(constant, each)))
        yield substitute(index, fixed)
