"""Make the nodes of everything that is wanted, operands first, however deep that goes.

An operand may be read at a number that a later equation computes, and what only sums read is left for those sums: those
are made before their turn. There is no recursion from a value to its operands, because a chain of them may be longer
than Python's stack.
"""

from __future__ import annotations

import numpy as np

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import accumulate, brought, exchange, joint_sums, keep, recurrences, sweeps
from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.demands import Demands, numbers_in
from jaxpr2triton.graph.neutral import left_alone
from jaxpr2triton.graph.nodes import Compute, Demand, Node, Place, Position, axes_of
from jaxpr2triton.graph.reads import (
    Accumulating,
    Along,
    Asked,
    Brought,
    Combined,
    Counted,
    Elements,
    Filling,
    Pieces,
    Read,
    Shown,
    Terms,
    Written,
    reads_of,
)
from jaxpr2triton.ir.jaxprs import Eqn, Literal, Var

Computed = tuple[Var, Demand]  # what an equation of the builder's jaxpr makes


def build_all(demands: Demands) -> Builder:
    """All nodes of a kernel."""
    builder = Builder(demands, _build)
    recurrences.begin_loops(builder)
    _build_wanted(builder)
    return builder


def _build_wanted(builder: Builder) -> None:
    """Make the nodes of everything that is wanted of a jaxpr."""
    demands = builder.demands
    summed = joint_sums.only_summed(demands.jaxpr)
    for number in reversed(demands.asked):
        eqn = demands.jaxpr.eqns[number]
        if number in builder.loops:
            _end_loop(builder, number)
            for out in eqn.outvars:
                for demand in demands.on(out):
                    builder.node(out, demand)
            continue
        if eqn.outvars[:1] and eqn.outvars[0] in summed:
            continue  # built with the sum, or when that asks for it
        for out in eqn.outvars:
            for demand in reversed(demands.on(out)):
                if (out, demand) not in builder.nodes:
                    _build_one(builder, eqn, demand)


def _end_loop(builder: Builder, number: int) -> None:
    """Make what a loop gives out, and the loop with it."""
    if number not in builder.left:
        builder.left.add(number)
        begun = builder.loops[number]
        starts = tuple(builder.node(*read) for read in begun.loop.starts)
        _build_wanted(begun.inner)
        recurrences.end_loop(builder, begun, starts)


def _build(builder: Builder, atom: Var, demand: Demand) -> None:
    """Make the node of a value that an equation computes, and of all that it needs."""
    demands, stack = builder.demands, list[Read]([(atom, demand)])
    opened: set[Read] = set()
    while stack:
        read = stack[-1]
        computed = _computed(builder, read)
        if computed is None:
            builder.node(*stack.pop())
            continue
        eqn, asked = demands.jaxpr.eqns[demands.makers[computed[0]]], demands.reads[computed]
        if read in opened:
            stack.pop()
            _build_one(builder, eqn, read[1])
        elif isinstance(asked, Elements) and (joined := joint_sums.build(builder, eqn, asked, read[1][0])):
            builder.nodes[computed] = joined  # one sum of the terms of several contractions: its operands are not made
            stack.pop()
        else:
            opened.add(read)
            stack.extend(reversed(_first(builder, computed)))


def _computed(builder: Builder, read: Read) -> Computed | None:
    """The same, if an equation of this jaxpr makes it, but no loop, and has not yet."""
    atom, demand = read
    demands = builder.demands
    if isinstance(atom, Literal | Filling) or atom not in demands.makers or atom in demands.buffers:
        return None
    if (atom, demand) in builder.nodes:
        return None
    if demands.makers[atom] in builder.loops:
        if atom not in builder.outside:
            _end_loop(builder, demands.makers[atom])
        if atom not in builder.outside:
            raise CompilerBug(f"a loop needs a value of its own end, {atom}, before it is over")
        return None
    return atom, demand


def _first(builder: Builder, read: Computed) -> list[Read]:
    """What has to be made before a value is: the numbers in its place, and its operands."""
    place, guard = read[1]
    indices = [*place, *(condition.index for condition in guard)]
    numbers = [(atom, demand) for path, atom, demand in numbers_in(indices) if path == builder.demands.path]
    return [*numbers, *reads_of(builder.demands.reads[read])]


def _build_one(builder: Builder, eqn: Eqn, demand: Demand) -> None:
    """Make the node of an element of the equation's result, from those of what it reads."""
    (out, *_) = eqn.outvars
    asked = builder.demands.reads[out, demand]
    builder.nodes[out, demand] = _built(builder, eqn, asked, demand, np.dtype(out.aval.dtype))


def _built(builder: Builder, eqn: Eqn, asked: Asked, demand: Demand, dtype: np.dtype) -> Node:
    match asked:
        case Elements():
            return joint_sums.build(builder, eqn, asked, demand[0]) or _compute(builder, eqn, asked, dtype, demand[0])
        case Terms():
            terms = tuple(builder.term(left, right, dtype) for left, right in asked.factors)
            return builder.reduced(eqn, terms, asked, dtype, demand[0])
        case Combined():
            operands = tuple(map(builder.element, asked.elements))
            return builder.reduced(eqn, operands, asked, dtype, demand[0])
        case Along():
            return sweeps.build(builder, eqn, asked, dtype)
        case Shown():
            return exchange.build(builder, eqn, asked, demand)
        case Written():
            return keep.build(builder, eqn, asked, demand)
        case Accumulating():
            return accumulate.build(builder, eqn, asked, demand)
        case Brought():
            return brought.build(builder, asked)
        case Pieces(pieces):
            found = [(conditions, builder.node(*read)) for conditions, read in reversed(pieces)]
            return builder.chosen_from(found[::-1])
        case Counted(index):
            needs = builder.needs([index])
            axes = index.axes | axes_of(needs)
            return builder.make(("at", index, str(dtype)), lambda n: Position(n, axes, dtype, index, needs))


def _compute(builder: Builder, eqn: Eqn, asked: Elements, dtype: np.dtype, place: Place) -> Node:
    operands = tuple(builder.node(*read) for read in asked.operands)
    return left_alone(eqn, operands) or builder.make(
        ("compute", id(eqn), operands), lambda n: Compute(n, axes_of(operands), dtype, eqn, operands, place)
    )
