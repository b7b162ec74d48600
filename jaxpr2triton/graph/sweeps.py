"""What is combined one by one along an axis, and wanted at any place of it.

    b = cumsum[axis=1] a, wanted at [i, j]          →    a at [i, j], swept along j
    …                     wanted at [i, 7 - j] too  →    take of the same sweep where j is 7 - j

A program has all of the axis, and sweeps along it once for all places that are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.demands import Demands
from jaxpr2triton.graph.nodes import Demand, Node, Swept
from jaxpr2triton.graph.reads import Along
from jaxpr2triton.ir.index import Axis, of_axis, plain_axis
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.rules.sweeps import axis_of


def ask(demands: Demands, number: Number, eqn: Eqn, wanted: Sequence[Demand]) -> None:
    """Choose the axis: the one at which the result is wanted, if the rest of its place has nothing to do with that."""
    operand, dim = eqn.invars[0], axis_of(eqn)
    in_use = demands.choose.steps.union(*(_beside(demand, dim) for demand in wanted))
    hints = demands.hints(operand, (dim,))
    (index,) = demands.choose.reduction(number, operand, (dim,), in_use, hints)
    axis = plain_axis(index)
    assert axis is not None  # no plan cuts what is swept into pieces, or makes it one with something else
    demands.reduced_axes.add(axis)
    demands.choose.final.add(axis)  # never the steps of a loop: a program has all of it at once
    for place, guard in wanted:
        whole = (*place[:dim], index, *place[dim + 1 :])
        rest = tuple(condition for condition in guard if axis not in condition.index.axes)
        operands = [demands.want(each, whole, rest) for each in eqn.invars]
        demands.reads[eqn.outvars[0], (place, guard)] = Along(operands, axis, place[dim])


def _beside(demand: Demand, dim: int) -> frozenset[Axis]:
    """The axes that the other dimensions run along, and those that stand in one condition with these."""
    place, guard = demand
    found = frozenset(axis for d, index in enumerate(place) if d != dim for axis in index.axes)
    together = [condition.index.axes for condition in guard if condition.index.axes & found]
    return found.union(*together)


def build(builder: Builder, eqn: Eqn, asked: Along, dtype: np.dtype) -> Node:
    """The node of a sweep, and of the place of it that is wanted."""
    operands = tuple(builder.node(*read) for read in asked.operands)
    axes = frozenset((asked.axis,)).union(*(operand.axes for operand in operands))
    whole, _ = asked.operands[0][1]
    swept = builder.make(
        ("sweep", id(eqn), operands, asked.axis),
        lambda n: Swept(n, axes, dtype, eqn, operands, (asked.axis,), whole),
    )
    return swept if asked.index == of_axis(asked.axis) else builder.take(swept, asked.axis, asked.index)
