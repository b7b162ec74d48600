"""What takes a step of a loop long to compute, and is wanted at other places of its own lanes than one: brought there.

    y = f(c), and y[k], y[k + 1], y[k + 2] are wanted    →    y = f(c) at k, taken from lanes k + 1 and k + 2

Otherwise f would be computed at each of these places, of what is read there. A program has the lanes all the same, for
they are those of an axis that the loop holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton import policy
from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.demands import Demands
from jaxpr2triton.graph.nodes import Demand, Node, Place
from jaxpr2triton.graph.reads import Brought
from jaxpr2triton.ir.dataflow import on_demand
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index, computed_in, of_axis
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Scan
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE


def ask(demands: Demands, eqn: Eqn, wanted: Sequence[Demand]) -> list[Demand]:
    """Let what is dear be computed at one place of its lanes; gives back where it is computed."""
    held = demands.held.union(*(loop.held for loop in demands.entered.values()))
    if not held or not isinstance(TABLE.get(eqn.primitive.name), Pointwise):
        return list(wanted)
    (out,) = eqn.outvars
    own = _own_axes(held, wanted, out.aval.shape)
    computed: dict[Demand, None] = {}
    for demand in wanted:
        place, guard = demand
        moves = {axis: place[d] for d, axis in own.items() if _is_moved(place[d], axis)}
        if not moves or not _is_dear(demands, out, place):
            computed[demand] = None
            continue
        home: Place = tuple(of_axis(own[d]) if own.get(d) in moves else index for d, index in enumerate(place))
        rest = tuple(condition for condition in guard if condition.index.axes.isdisjoint(moves))
        read = demands.want(out, home, rest)
        demands.reads[out, demand] = Brought([read], moves)
        computed[read[1]] = None
    return list(computed)


def build(builder: Builder, asked: Brought) -> Node:
    """The lanes that are wanted, of what is computed for all of them."""
    (read,) = asked.operands
    node = builder.node(*read)
    for axis, index in asked.moves.items():
        node = builder.take(node, axis, index) if axis in node.axes else node
    return node


def _own_axes(held: frozenset[Axis], wanted: Sequence[Demand], shape: Sequence[int]) -> Mapping[int, Axis]:
    """The dimensions that run along one held axis wherever the value is wanted, each along its own."""
    found: dict[int, Axis] = {}
    for d, size in enumerate(shape):
        axes = {axis for place, _ in wanted for axis in place[d].axes}
        own = [axis for axis in axes if len(axes) == 1 and axis in held and axis.size == size]
        beside = (index.axes for place, _ in wanted for e, index in enumerate(place) if e != d)
        if own and all(map(axes.isdisjoint, beside)):
            found[d] = own[0]
    return found


def _is_moved(index: Index, axis: Axis) -> bool:
    """Whether lanes want others, or all want one, known before the program runs."""
    return index != of_axis(axis) and not any(computed_in(index))


def _is_dear(demands: Demands, var: Var, place: Place) -> bool:
    """Whether a step waits for long for a value."""
    steps = demands.steps or demands.choose.steps.intersection(*(index.axes for index in place))
    return bool(steps) and (waits_for(demands, var) or 0) >= policy.COMMON.worth_bringing


def waits_for(demands: Demands, var: Var) -> float | None:
    """The instructions on the longest way to a value, since something was read or carried or summed; None if no step
    of the loop around changes it.
    """

    def maker(each: Var) -> Eqn | None:
        return demands.jaxpr.eqns[demands.makers[each]] if _is_made(demands, each) else None

    def operands(each: Var) -> list[Var]:
        eqn = maker(each)
        return variables(eqn.invars) if eqn is not None else []

    def transfer(each: Var, waits: list[float | None]) -> float | None:
        eqn, known = maker(each), [wait for wait in waits if wait is not None]
        if eqn is None:
            return 0.0
        return max(known) + _weight(eqn) if known else None

    return on_demand(var, operands, transfer, demands.waits)


def enter(demands: Demands, inner: Demands, scan: Scan) -> None:
    """Let a walk through a body know what its steps wait for outside."""
    inner.waits.update((inside, None) for _, inside in scan.consts)
    inner.waits.update((inside, _before(demands, outside)) for outside, inside in scan.xs)


def _before(demands: Demands, atom: Atom) -> float:
    return 0.0 if isinstance(atom, Literal) else waits_for(demands, atom) or 0.0


def _is_made(demands: Demands, var: Var) -> bool:
    """Whether an equation of the jaxpr computes it lane by lane, of nothing at all, or finds it elsewhere."""
    if var not in demands.makers or var in demands.buffers:
        return False
    eqn = demands.jaxpr.eqns[demands.makers[var]]
    return isinstance(TABLE.get(eqn.primitive.name), Pointwise | Indexing) or not variables(eqn.invars)


def _weight(eqn: Eqn | None) -> float:
    row = TABLE.get(eqn.primitive.name) if eqn is not None else None
    return row.weight if isinstance(row, Pointwise) else 0.0
