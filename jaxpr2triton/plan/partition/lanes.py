"""Results of loops that have to be in memory, because sums run over lanes that programs could share out.

_, ys = scan f c xs;  sums = sum[axes=(1,)] ys    →    ys is written by the loop, and read by another kernel
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxpr2triton import policy
from jaxpr2triton.graph.nodes import Final, Node, Recurrence, Reduce, Swept, operands_of
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.graph.space import Space
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.ir.dataflow import sources
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.ir.scans import LOOPS, scans_in
from jaxpr2triton.plan.partition.criteria import size_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.program import Program


def summed_over_lanes(cuts: Cuts, space: Space) -> list[Var]:
    """Results of a loop that have to be in memory, because a sum runs over what many programs can share out."""
    loops = {id(scan.eqn) for scan in scans_in(cuts.jaxpr)}
    recurrences = [node for node in space.graph.of_kind(Recurrence) if id(node.eqn) in loops]
    if not recurrences:
        return []
    ended, under_way = _below(space, recurrences)
    for node in space.graph.of_kind(Reduce):
        over = frozenset(node.over)
        for loop in recurrences:
            shared = loop in ended[node] and over & (loop.axes - loop.held)
            lanes = size_of(loop.axes - {loop.step})
            after = lanes > cuts.policy.cuts.small_loop and (loop.step in over or shared)
            if _in_parts(cuts, node, loop):
                continue
            if after or (loop in under_way[node] and _keeps_together(loop, over)):
                read = _read_of(cuts, loop.eqn, node.eqn)
                if read:
                    return read
    return []


Loops = Mapping[Node, frozenset[Recurrence]]


def _below(space: Space, recurrences: Iterable[Recurrence]) -> tuple[Loops, Loops]:
    """The loops of whose ends each value is made, and those of whose steps it is."""
    carrying: dict[Node, Recurrence] = {leaf: loop for loop in recurrences for leaf in loop.carried}
    ends: dict[Node, Recurrence] = {end: end.recurrence for end in space.graph.of_kind(Final)}

    def below(loops: Mapping[Node, Recurrence]) -> Loops:
        found = sources(space.graph.nodes, operands_of, loops)
        return {node: frozenset(loops[each] for each in of) for node, of in found.items()}

    return below(ends), below(carrying)


def _in_parts(program: Program, node: Reduce, loop: Recurrence) -> bool:
    """Whether it sums the lanes that a program of the loop has, as `sums_in_loops` has it; of few those in a step."""
    lanes, least = size_of(loop.axes & frozenset(node.over)), program.policy.target.warp_size
    few = 1 if loop.step in node.axes else 4
    as_usual = few * least <= lanes <= 16 * least and loop.step not in node.over
    return as_usual and node.eqn.outvars[0] in program.in_chunks


def _keeps_together(loop: Recurrence, over: frozenset[Axis]) -> bool:
    """Whether a sum of what each step puts out is why few programs have many lanes each, as in `sums_apart`."""
    lanes = loop.axes - loop.held
    few = size_of(lanes - over) < DEFAULT_TARGET.processors
    return few and size_of(lanes & over) > policy.COMMON.lanes_apart


def summed_by_root(cuts: Cuts, space: Space, root: Var) -> list[Var]:
    """The results of a loop of whose lanes a program has all because the root is a sum of these."""
    loops = {id(eqn): eqn for eqn in cuts.loops}
    sums = [node for node in space.graph.of_kind(Reduce) if node.eqn.outvars[0] is root]
    for loop in space.graph.of_kind(Recurrence):
        lanes = loop.axes - loop.held
        is_summed = id(loop.eqn) in loops and any(not lanes.isdisjoint(node.over) for node in sums)
        if is_summed and (read := _read_of(cuts, loops[id(loop.eqn)], sums[0].eqn)):
            return read_together(cuts, read[0])
    return []


def much_beside_steps(cuts: Cuts, space: Space, root: Var) -> list[Var]:
    """What has to be in memory, so that the few programs of a loop do not add up much before it or after it, alone.

    s = sum[axes=(1,)] a;  c = scan f c xs s      a: f32[2048,16384]: in the kernel of one program, 2^25 numbers
    c = scan f c xs;  s = sum[axes=(1,)] (a * c)
    """
    grid = frozenset(space.axes) - space.inner
    for node in space.graph.of_kind((Reduce, Swept)):
        axes = node.axes.union(node.over) - grid
        if not axes.isdisjoint(space.steps) or size_of(axes) <= cuts.policy.much or is_contraction(node):
            continue
        (made,) = node.eqn.outvars[:1]
        if made in cuts.makers and made is not root and made not in cuts.loaded:
            return [made]
        if read := [var for loop in cuts.loops for var in _read_of(cuts, loop, node.eqn)]:
            return read_together(cuts, read[0])
    return []


def _read_of(cuts: Cuts, loop: Eqn, reader: Eqn) -> list[Var]:
    """The results of the loop that an equation reads, directly or not, and that are not in memory yet."""
    wanted = set(variables(reader.invars))
    for eqn in reversed(cuts.jaxpr.eqns):
        if eqn is not loop and any(var in wanted for var in eqn.outvars):
            wanted.update(atom for atom in variables(eqn.invars) if atom not in cuts.loaded)
    return [var for var in loop.outvars if var in wanted and var not in cuts.loaded]


def read_together(cuts: Cuts, value: Var) -> list[Var]:
    """The value and, if a loop makes it, whatever else is read of that loop: no loop is run twice."""
    eqn = cuts.maker(value)
    if eqn.primitive.name not in LOOPS:
        return [value]
    read = read_in(cuts.jaxpr)
    return [value, *(var for var in eqn.outvars if var in read and var is not value and var not in cuts.loaded)]


@once
def read_in(jaxpr: Jaxpr) -> frozenset[Var]:
    """All that some equation reads."""
    return frozenset(atom for eqn in jaxpr.eqns for atom in variables(eqn.invars))
