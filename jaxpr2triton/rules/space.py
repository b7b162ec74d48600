"""The iteration space of a set of outputs: their axes, and which of them one program has to hold whole.

The outputs of a kernel share the axes of the `lead`, the output with the most dimensions. An axis is `inner` when some
reduction's result is wanted for all of it at once (softmax wants the sum of a row for every element of that row): then
one program walks the whole axis. Every other axis may be spread over the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpr2triton.ir.index import ZERO, Axis, Index, of_axis
from jaxpr2triton.rules.classes import Classes
from jaxpr2triton.rules.demand import Chooser, Graph, Node, Place, Reduce, operands_of, walk


@dataclass(frozen=True)
class Space:
    outputs: tuple[Any, ...]  # variables
    axes: tuple[Axis, ...]  # of the lead output, without those of size 1
    places: tuple[Place, ...]  # of each output, in terms of `axes`
    graph: Graph
    chosen: Mapping[int, tuple[Axis, ...]]  # equation number of a reduction → its axes
    inner: frozenset[Axis]

    @property
    def parallel(self) -> int:
        return math.prod(axis.size for axis in self.axes if axis not in self.inner)

    @property
    def held(self) -> int:
        return math.prod(axis.size for axis in self.axes if axis in self.inner)

    def wanted_whole(self, reduction: Reduce) -> frozenset[Axis]:
        """The root axes for all of which the reduction's one result is wanted."""
        return frozenset(self.axes) - reduction.axes


def lead_of(shapes: Sequence[tuple[int, ...]]) -> int:
    """The output whose dimensions the kernel's axes are."""
    return max(range(len(shapes)), key=lambda n: (sum(s != 1 for s in shapes[n]), math.prod(shapes[n]), -n))


def match_dims(lead: Any, other: Any, classes: Classes, allowed: Sequence[int] | None = None) -> dict[int, int] | None:
    """For each dimension of `other` (not of size 1) the dimension of `lead` that it is; None if it does not fit.

    Sizes must agree, in order; among the ways to do that, one in which the classes agree as well is taken, and a way in
    which a class says that two dimensions are different ones is refused.
    """
    lead_dims = [d for d, size in enumerate(lead.aval.shape) if size != 1 and (allowed is None or d in allowed)]
    lead_classes = classes.of(lead)
    other_classes = classes.of(other)
    matched: dict[int, int] = {}
    position = 0
    for d, size in enumerate(other.aval.shape):
        if size == 1:
            continue
        rest = lead_dims[position:]
        same_class = [e for e in rest if lead_classes[e] == other_classes[d]]
        if other_classes[d] in lead_classes and not same_class:
            return None
        found = next(iter(same_class or [e for e in rest if lead.aval.shape[e] == size]), None)
        if found is None or lead.aval.shape[found] != size:
            return None
        matched[d] = found
        position = lead_dims.index(found) + 1
    return matched


def chooser(classes: Classes, root_axes: Mapping[Any, Axis], chosen: dict[int, tuple[Axis, ...]]) -> Chooser:
    """Gives each reduction its axes: those of the same class, else of the same size, else new ones."""
    by_class = dict(root_axes)
    fresh: list[Axis] = []

    def choose(number: int, eqn: Any, in_use: frozenset[Axis]) -> tuple[Index, ...]:
        shape = eqn.invars[0].aval.shape
        operand = eqn.invars[0]
        taken = set(in_use)
        picked = []
        for d in eqn.params["axes"]:
            kind = classes.find((operand, d)) if not hasattr(operand, "val") else None
            candidates = [by_class[kind]] if kind in by_class else []
            candidates += [axis for axis in fresh if axis.size == shape[d]]
            axis = next((a for a in candidates if a not in taken and a.size == shape[d]), None)
            if axis is None:
                axis = Axis(f"k{len(fresh)}", shape[d])
                fresh.append(axis)
                by_class.setdefault(kind, axis)
            taken.add(axis)
            picked.append(axis)
        chosen[number] = tuple(picked)
        return tuple(of_axis(axis) for axis in picked)

    return choose


def space_of(
    jaxpr: Any,
    outputs: Sequence[Any],
    classes: Classes,
    loaded: Mapping[Any, int] | None = None,
    patient: bool = True,
) -> Space | None:
    """The space that these output variables share; None when their dimensions do not fit together."""
    lead = outputs[lead_of([atom.aval.shape for atom in outputs])]
    dims = tuple(Axis(f"d{d}", size) for d, size in enumerate(lead.aval.shape))
    places = []
    for atom in outputs:
        matched = match_dims(lead, atom, classes) if atom is not lead else {d: d for d in range(len(dims))}
        if matched is None:
            return None
        places.append(tuple(of_axis(dims[matched[d]]) if d in matched else ZERO for d in range(len(atom.aval.shape))))
    chosen: dict[int, tuple[Axis, ...]] = {}
    root_axes = {kind: axis for kind, axis in zip(classes.of(lead), dims) if axis.size != 1}
    graph = walk(jaxpr, list(zip(outputs, places)), chooser(classes, root_axes, chosen), loaded=loaded, patient=patient)
    axes = tuple(axis for axis in dims if axis.size != 1)
    inner = set().union(*(frozenset(axes) - node.axes for node in graph.of_kind(Reduce)))
    stored = [frozenset(a for i in place for a in i.axes) for place in places]
    inner |= set().union(*(frozenset(axes) - have for have in stored))
    return Space(tuple(outputs), axes, tuple(places), graph, chosen, frozenset(inner))


def spread_axes(space: Space) -> frozenset[Axis]:
    """The axes that only sums run along whose results no other reduction reads: programs can share them out."""
    fed = feeds_a_reduction(space.graph)
    kept = {axis for node in fed for axis in node.over}
    return frozenset(a for node in space.graph.of_kind(Reduce) if node not in fed for a in node.over if a not in kept)


def feeds_a_reduction(graph: Graph) -> frozenset[Reduce]:
    """The reductions whose results another reduction reads, directly or not."""
    below: dict[Node, frozenset[Reduce]] = {}
    found: set[Reduce] = set()
    for node in graph.nodes:
        inherited = frozenset().union(*(below[o] for o in operands_of(node)))
        if isinstance(node, Reduce):
            found |= inherited
            inherited = frozenset((node,))
        below[node] = inherited
    return frozenset(found)
