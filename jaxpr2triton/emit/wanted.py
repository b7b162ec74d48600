"""Loads of which a choice wants only some elements: the others are not read.

    scores = tl.load(scores_ptr + col, mask=col < length, other=0.0)
    chosen = tl.where(col < length, scores, float('-inf'))

So nothing is read of a row beyond its length, nor of the half of a matrix that a causal mask hides. The choice has to
be known without waiting for what lies beside it: it is made of places, and of what is the same for a whole row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.graph.nodes import Compute, Constant, Graph, Load, Node, Position, Recurrence, Store, operands_of
from jaxpr2triton.graph.order import Order
from jaxpr2triton.ir.dataflow import reachable

COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor"))
COUNTED = frozenset(("add", "sub", "mul", "neg", "max", "min", "convert_element_type"))

Users = Mapping[Node, Sequence[Node | Store]]


@dataclass(frozen=True)
class Wanted:
    """What says whether an element is wanted, and the answer that it is."""

    where: Node
    holds: bool


def wanted_of(graph: Graph, users: Users, order: Order) -> Mapping[Load, Wanted]:
    """The loads that one choice alone reads; none beside loops that carry something, where loads are made ahead."""
    if next(graph.of_kind(Recurrence), None) is not None:
        return {}
    found: dict[Load, Wanted] = {}
    for node in graph.of_kind(Compute):
        if node.eqn.primitive.name != "select_n" or len(node.operands) != 3:
            continue
        for case, operand in enumerate(node.operands[1:]):
            load = _load_of(operand, node, users)
            if load is not None and _is_known_before(node.operands[0], load, order):
                found[load] = Wanted(node.operands[0], bool(case))
    return found


def _load_of(node: Node, user: Node, users: Users) -> Load | None:
    """What is loaded for this one alone, and perhaps converted."""
    while len(users[node]) == 1 and users[node][0] is user:
        if isinstance(node, Load):
            return node
        if not isinstance(node, Compute) or node.eqn.primitive.name != "convert_element_type":
            return None
        user, node = node, node.operands[0]
    return None


def _is_known_before(where: Node, load: Load, order: Order) -> bool:
    if not load.place or not where.axes <= load.axes or not order.loops(where) <= order.loops(load):
        return False
    nearest = load.place[-1].axes

    def is_known(node: Node) -> bool:
        match node:
            case Position() | Constant():
                return True
            case Load():
                return node.axes.isdisjoint(nearest)
            case Compute():
                return node.eqn.primitive.name in COMPARED | COUNTED
        return False

    return bool(where.axes) and all(map(is_known, reachable([where], operands_of)))
