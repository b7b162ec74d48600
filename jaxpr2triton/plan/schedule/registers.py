"""How many numbers a program reads at once, as the taps of a window, before it has made one of them.

    y[i] = x[i] * w[0] + x[i + 1] * w[1] + …        25 taps of 16 elements are 400 registers of each thread

What is a factor of matrices and nothing else goes to shared memory, and no thread keeps it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from jaxpr2triton.graph.nodes import Graph, Load, Node, Product
from jaxpr2triton.graph.sides import loads_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.plan.schedule.draft import Draft


def read_at_once(graph: Graph, draft: Draft, blocks: Mapping[Axis, int]) -> int:
    """The elements of all that is read at many places for one result: what a thread adds up as it reads it."""
    places = Counter(load.buffer for load in graph.of_kind(Load))
    taps = [load for load in graph.of_kind(Load) if places[load.buffer] > draft.policy.axes.unrolled_sum]
    return sum(_elements(load, blocks) for load in taps)


def read_for_factors(graph: Graph, draft: Draft, blocks: Mapping[Axis, int]) -> int:
    """The elements that are loaded to compute the factors of one product."""
    least, found = draft.policy.axes.unrolled_sum, 0
    for node in graph.of_kind(Product):
        made = [operand for operand in node.operands if not _is_plain(operand)]
        found = max(found, sum(_elements(load, blocks) for load in loads_of(made, least)))
    return found


def _is_plain(node: Node) -> bool:
    return isinstance(node, Load)


def _elements(node: Node, blocks: Mapping[Axis, int]) -> int:
    return math.prod(blocks.get(axis, 1) for axis in node.axes)
