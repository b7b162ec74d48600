"""Which roots share a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.partition.cut import ENOUGH_PROGRAMS, SMALL, Cuts, acceptable, elements, loads_of, without
from jaxpr2triton.rules.demand import Crowded
from jaxpr2triton.rules.nodes import Recurrence, Reduce
from jaxpr2triton.rules.order import Order
from jaxpr2triton.rules.space import Space, space_of

OUTPUTS_AT_MOST = 32
BUFFERS_AT_MOST = 96
CHEAP_TO_JOIN = 1 << 22  # elements read, below which saving a launch is all that counts
WALKED = 1 << 20  # elements that one program may walk for the sake of reading them once
RESIDENT = 8192  # elements of a row that one program may hold for the sake of sharing it


@dataclass
class Group:
    level: int
    roots: list[Any]
    space: Space


def levels_of(cuts: Cuts) -> tuple[dict[Any, int], dict[Any, int]]:
    """How many kernels or XLA equations come before each root, and before each equation that XLA keeps.

    A root counts for those that read it from memory; a kernel that computes it again does not wait for it.
    """
    computed: dict[Any, int] = {var: 0 for var in cuts.jaxpr.invars}  # what comes before a value can be computed
    written: dict[Any, int] = {}  # … and before it is in memory
    root_level: dict[Any, int] = {}
    outside_level: dict[Any, int] = {}
    outside, views, roots = set(cuts.outside), set(cuts.views), set(cuts.roots)
    for eqn in cuts.jaxpr.eqns:
        atoms = [atom for atom in eqn.invars if not isinstance(atom, jex.Literal)]
        if eqn in outside or eqn.primitive is boundary_p:
            before = max((written.get(atom, computed[atom]) for atom in atoms), default=0)
        else:
            before = max((written[a] if a in cuts.loaded and a in written else computed[a] for a in atoms), default=0)
        if eqn in outside:
            outside_level[eqn] = before
            before += 1
        for var in eqn.outvars:
            computed[var] = before
            if eqn in views:
                written[var] = written.get(eqn.invars[0], computed[eqn.invars[0]])
            if var in roots:
                root_level[var] = before
                written[var] = before + 1
    return root_level, outside_level


def group_roots(cuts: Cuts, levels: dict[Any, int]) -> list[Group]:
    """Roots of one level with one iteration space and a common operand share a kernel."""
    groups: list[Group] = []
    order = {var: number for number, var in enumerate(v for eqn in cuts.jaxpr.eqns for v in eqn.outvars)}
    roots = sorted(cuts.roots, key=lambda v: (levels[v], -len(v.aval.shape), order[v]))
    for root in roots:
        home = next((g for g in groups if g.level == levels[root] and _joins(cuts, g, root)), None)
        if home is None:
            groups.append(Group(levels[root], [root], cuts.spaces[root]))
            continue
        home.roots = sorted([*home.roots, root], key=lambda v: order[v])
        joined = space_of(cuts.jaxpr, home.roots, cuts.classes, without(cuts.loaded, home.roots), union=True)
        assert joined is not None  # _joins has seen it
        home.space = joined
    return groups


def loops_of(space: Space) -> set[int]:
    return {id(node.eqn) for node in space.graph.of_kind(Recurrence)}


def _joins(cuts: Cuts, group: Group, root: Any) -> bool:
    if len(group.roots) >= OUTPUTS_AT_MOST:
        return False
    mine, theirs = set(loads_of(cuts, cuts.spaces[root])), set(loads_of(cuts, group.space))
    if len(mine | theirs) > BUFFERS_AT_MOST:
        return False
    if not mine & theirs and sum(map(elements, mine | theirs)) > CHEAP_TO_JOIN:
        return False
    roots = [*group.roots, root]
    common_loop = bool(loops_of(group.space) & loops_of(cuts.spaces[root]))
    try:
        joined = space_of(
            cuts.jaxpr, roots, cuts.classes, without(cuts.loaded, roots), patient=False, union=common_loop
        )
    except Crowded:
        return False
    if joined is None or any(True for _ in Order(joined.graph, joined.steps).conflicts()):
        return False  # what one of them needs of a loop is over before what the other one needs has begun
    if common_loop:
        return True  # no loop is run twice
    shared_out = cuts.is_shared_out(joined)
    if not acceptable(joined, shared_out):
        return False
    if joined.held <= max(group.space.held, cuts.spaces[root].held):
        return True
    if sum(map(elements, mine & theirs)) * 4 < sum(map(elements, mine | theirs)):
        return False  # little is shared for what it would cost
    # A program may hold more than it did for one of them, if that is what a reduction walks anyway.
    reduced = {axis for node in joined.graph.of_kind(Reduce) for axis in node.over}
    if shared_out:
        enough = joined.held <= WALKED
    elif joined.held <= RESIDENT:
        enough = joined.parallel >= ENOUGH_PROGRAMS or joined.held * joined.parallel <= SMALL
    else:
        enough = joined.parallel >= 2 * ENOUGH_PROGRAMS and joined.held <= WALKED
    return joined.inner <= reduced and enough
