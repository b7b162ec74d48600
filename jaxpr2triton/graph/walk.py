"""Demand by index: from "these outputs at these indices" back to the loads.

`walk` goes through a jaxpr twice. Backwards, each equation learns at which indices its result is wanted and asks its
operands; forwards, every (variable, index) that was wanted becomes one node. What is asked for twice is one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton.graph.build_nodes import build_all
from jaxpr2triton.graph.chooser import Chooser
from jaxpr2triton.graph.demands import Demands, TooManyPlaces
from jaxpr2triton.graph.nodes import Graph, Place, Store
from jaxpr2triton.graph.propagate_demands import propagate
from jaxpr2triton.graph.reads import every_place
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Atom, Jaxpr, Var


def walk(
    jaxpr: Jaxpr,
    roots: Sequence[tuple[Atom, Place]],
    choose: Chooser,
    unrolled: frozenset[Axis] = frozenset(),
    loaded: Mapping[Var, int] | None = None,
    may_repeat: bool = True,
) -> Graph:
    """The graph of everything that `roots` (variable, index) need; a store's `output` is its root's position.

    `loaded` maps the jaxpr's operands, and further variables, to the buffers that hold them. Unless it
    `may_repeat`, a walk raises `TooManyPlaces` when a value would be computed again and again. Its time is that of what
    it finds.
    """
    buffers = {var: number for number, var in enumerate(jaxpr.invars)} if loaded is None else loaded
    demands = Demands(jaxpr, choose, unrolled, may_repeat, buffers=buffers)
    places = [
        (output, atom, fixed) for output, (atom, place) in enumerate(roots) for fixed in every_place(place, unrolled)
    ]
    try:
        targets = propagate(demands, [(atom, place) for _, atom, place in places])
    finally:
        if demands.crowding:  # this comes before whatever else was met
            raise TooManyPlaces(demands.crowding[0], others=demands.crowding[1:])
    builder = build_all(demands)
    stores = tuple(Store(output, place, builder.node(*read)) for (output, _, place), read in zip(places, targets))
    return Graph(tuple(builder.made.values()), stores, builder.computed)
