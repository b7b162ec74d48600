"""What a value costs: operations, and elements that are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from jaxpr2triton.graph.nodes import Compute, Kept, Load, Node, Product, Reduce, Swept
from jaxpr2triton.ir.index import Axis, flatten
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import PlannedAxis
from jaxpr2triton.rules.rows import TABLE


def weight_of(node: Node) -> int:
    """Operations for each element, along the axes that it is reduced along too."""
    match node:
        case Compute():
            return TABLE[node.eqn.primitive.name].flops
        case Product():
            return 1
        case Swept():
            return TABLE[node.eqn.primitive.name].flops(node.axis.size)
        case Reduce():
            return node.operations
        case _:
            return 0


def begins_of(nodes: Iterable[Node], needed: Callable[[Node], Iterable[Node]]) -> dict[Node, int]:
    """How many operations of others among these each of them waits for."""
    begins: dict[Node, int] = {}
    ends: dict[Node, int] = {}
    for node in sorted(nodes, key=lambda node: node.number):
        begins[node] = max((ends.get(operand, 0) for operand in needed(node)), default=0)
        ends[node] = begins[node] + weight_of(node)
    return begins


def work_of(node: Node) -> int:
    return weight_of(node) * math.prod(axis.size for axis in node.axes.union(getattr(node, "over", ())))


def asked_of(node: Load | Kept, axes: Iterable[PlannedAxis], open_loops: Collection[Axis]) -> int:
    """How many elements all programs ask for, each for itself and in each step of the loops around."""
    own = math.prod(axis.size for axis in node.axes)
    again = (
        planned.steps
        for planned in axes
        if planned.axis not in node.axes
        and not planned.unbounded
        and (planned.role.is_parallel or planned.axis in open_loops)
    )
    return own * math.prod(again)


def footprint_of(node: Load | Kept, buffer: Buffer) -> int:
    """How many elements a load touches, over the whole kernel."""
    low, high = flatten(node.place, buffer.shape).bounds
    elements = math.prod(buffer.shape)
    return min(elements, high - low + 1, math.prod(axis.size for axis in node.axes))
