"""The nodes of a loop in a kernel: its carried values at the beginning of a step, the loop, and what it gives out.

c, ys = scan[jaxpr=f] c0 xs    →    %1 = carried, …  what f makes of %1 …, %8 = recurrence(…), %9 = final(%8)

The leaves are made before all else, because an index that the body computes may be needed to build what it reads of the
outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from jaxpr2triton.graph.builder import Builder, LoopNodes
from jaxpr2triton.graph.carried import found_at
from jaxpr2triton.graph.nodes import Carried, Demand, Final, Node, Place, Recurrence, axes_in
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Atom, Var


def begin_loops(builder: Builder) -> None:
    """Make the leaves of all loops, and let the body of each find them and what lies outside."""
    for number, loop in builder.demands.entered.items():
        scan, inner = loop.scan, builder.inside(loop)
        builder.builders.update({builder.demands.path: builder, loop.inner.path: inner})
        builder.loops[number] = begun = LoopNodes(loop, inner)
        for position in loop.live:
            before = scan.carries[position][1]
            tiles = {}
            for place in loop.places[position]:
                axes = frozenset(axes_in(place, ())) | loop.step.axes | builder.demands.steps
                leaf = builder.make(("carried", loop.inner.path, position, place), _leaf(axes, before, loop.step))
                tiles[place] = begun.leaves[position, place] = leaf
            inner.outside[before] = functools.partial(found_at, inner, tiles)
        for outside, inside in scan.consts:
            inner.outside[inside] = functools.partial(_element, builder, outside, ())
        for outside, inside in scan.xs:
            inner.outside[inside] = functools.partial(_element, builder, outside, (loop.step,))
        begin_loops(inner)


def _element(builder: Builder, outside: Atom, step: Place, demand: Demand) -> Node:
    """What a body reads of the outside: `x[j]` of the body is `xs[t, j]` there."""
    place, guard = demand
    return builder.node(*builder.demands.reading(outside, (*step, *place), guard))


def _put_out(builder: Builder, atom: Atom, demand: Demand) -> Node:
    """What a step puts out: `ys[t, j]` is `y[j]` of the body."""
    place, _ = demand
    return builder.node(*builder.demands.reading(atom, place[1:], ()))


def _leaf(axes: frozenset[Axis], var: Var, step: Index) -> Callable[[int], Carried]:
    (step_axis,) = step.axes
    return lambda number: Carried(number, axes, np.dtype(var.aval.dtype), step_axis)


def end_loop(builder: Builder, begun: LoopNodes, starts: tuple[Node, ...]) -> None:
    """Make the node of a loop whose body has its nodes, and let its results be found.

    None of these is built yet: the place at which one is wanted may be a number that waits for a loop which is just
    being left, and which reads another result of this one.
    """
    loop, inner = begun.loop, begun.inner
    scan = loop.scan
    (step_axis,) = loop.step.axes
    nexts = tuple(inner.node(*inner.demands.reading(scan.carries[p][2], place, ())) for p, place in begun.leaves)
    leaves = tuple(begun.leaves.values())
    axes = frozenset().union(*(leaf.axes for leaf in leaves)) - {step_axis}
    run, values = (step_axis, loop.held, loop.bound, scan.reverse, scan.conditional), (starts, leaves, nexts)
    recurrence = builder.make(
        ("recurrence", loop.inner.path, leaves),
        lambda n: Recurrence(n, axes, np.dtype(bool), scan.eqn, *run, *values),
    )
    finals = {
        slot: builder.make(("final", recurrence, n), functools.partial(_final, leaf, recurrence, n))
        for n, (slot, leaf) in enumerate(begun.leaves.items())
    }
    for position in loop.live:
        tiles = {place: finals[position, place] for place in loop.places[position]}
        builder.outside[scan.carries[position][3]] = functools.partial(found_at, builder, tiles)
    for atom, result in scan.ys:
        builder.outside[result] = functools.partial(_put_out, inner, atom)


def _final(leaf: Carried, recurrence: Recurrence, position: int, number: int) -> Final:
    return Final(number, leaf.axes - {recurrence.step}, leaf.dtype, recurrence, position)
