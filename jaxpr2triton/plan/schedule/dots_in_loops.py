"""Products in the steps of loops that Triton multiplies as matrices, where a program has several rows.

    h' = tanh(x + h @ u)     for each row        t: loop 512 by 1 | col: lane 128 | k: lane 128 | row: grid 1024 by 8

    u = tl.load(u_ptr + k[None, :] * 128 + col[:, None])
    for t in range(512):
        dot = tl.dot(u, h.to(tl.bfloat16))

The matrices lie in shared memory, and are read from there in each step: they have to fit, and to be of 16 bits. They
are the factor on the left, of which units for matrices take 16 rows at least, but as few as 8 columns of the other one.
"""

from __future__ import annotations

import graphlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jaxpr2triton.graph.nodes import Graph, Load, Node, Product, Reduce
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.plan.schedule.draft import Draft
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.products import LEAST, factor_dtype

Axes = frozenset[Axis]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Matrix:
    """A factor that no step changes, and what it is multiplied with."""

    factor: Node
    along: Axis  # what is summed
    column: Axis
    bytes: int  # of an element

    @property
    def elements(self) -> int:
        return power_of_two(self.along.size) * power_of_two(self.column.size)


@dataclass(frozen=True)
class InSteps:
    """The products of a kernel's loops, all of them matrices times rows."""

    matrices: tuple[Matrix, ...]
    lanes: tuple[Axis, ...]  # the inner axes in the order of tile dimensions
    sums: frozenset[Node]

    def cycles(self, rows: int, policy: Policy) -> float:
        """How long a step multiplies, in a program that has a processor for itself."""
        return rows * sum(each.elements for each in self.matrices) / policy.cost.multiplied

    def shared_bytes(self, shapes: Shapes) -> int:
        """Of the matrices; what is read of one array is not more than that has, with room for lanes outside of it."""
        read: dict[int | Node, int] = {}
        for each in self.matrices:
            key, most = _source(each.factor, shapes)
            read[key] = min(read.get(key, 0) + each.elements * each.bytes, most * each.bytes)
        return sum(read.values())


def _source(factor: Node, shapes: Shapes) -> tuple[int | Node, int]:
    """What is read for a factor, and the elements that this has at most."""
    if not isinstance(factor, Load):
        return factor, 1 << 62
    return factor.buffer, math.prod(map(power_of_two, shapes[factor.buffer]))


def in_steps(graph: Graph, draft: Draft, shapes: Shapes) -> InSteps | None:
    """The products of the loops of a kernel, whose values are those of `graph`; None unless all can be blocks."""
    policy = draft.policy
    if not draft.grid or draft.unbounded or draft.grid[-1].size < LEAST // 2:
        return None
    contractions = [node for node in graph.of_kind(Reduce) if is_contraction(node)]
    found = [_matrices_of(node, draft) for node in contractions]
    matrices: dict[Node, Matrix] = {}
    for each in found:
        if each is None:
            return None
        matrices |= each
    lanes = _in_order(draft.inner, matrices.values())
    if not matrices or not _are_small(graph, frozenset(contractions), frozenset(matrices), draft):
        return None
    made = InSteps(tuple(matrices.values()), lanes, frozenset(contractions))
    return made if made.shared_bytes(shapes) <= policy.target.shared_bytes * 3 // 4 else None


def _matrices_of(node: Reduce, draft: Draft) -> dict[Node, Matrix] | None:
    """What the rows of a contraction are multiplied with."""
    row, inner, dtype = draft.grid[-1], frozenset(draft.inner), factor_dtype(node.eqn)
    mine, over = node.axes, frozenset(node.over)
    columns, steps = mine & inner, frozenset(draft.steps)
    if dtype is None or dtype.itemsize != 2 or not steps & node.axes or row not in mine:
        return None
    if len(columns) != 1 or len(over) != 1 or not over <= inner or over & columns:
        return None
    (column,), (along,) = columns, over
    found: dict[Node, Matrix] = {}
    for term in node.operands:
        if not isinstance(term, Product) or min(column.size, along.size) < LEAST:
            return None
        state, matrix = sorted(term.operands, key=lambda each: row in each.axes, reverse=True)
        of_matrix, of_state = matrix.axes, state.axes
        if of_matrix & inner != {along, column} or row in of_matrix or steps & matrix.axes:
            return None
        if of_state & inner != {along} or row not in of_state:
            return None
        found[matrix] = Matrix(matrix, along, column, dtype.itemsize)
    return found


def _in_order(inner: Sequence[Axis], matrices: Iterable[Matrix]) -> tuple[Axis, ...]:
    """What there are results for before what is summed, unless that goes round in a circle."""
    before: dict[Axis, dict[Axis, None]] = {axis: {} for axis in inner}
    for matrix in matrices:
        before[matrix.along][matrix.column] = None
    try:
        return tuple(graphlib.TopologicalSorter(before).static_order())
    except graphlib.CycleError:
        return tuple(inner)


def _are_small(graph: Graph, sums: frozenset[Node], matrices: frozenset[Node], draft: Draft) -> bool:
    """Whether all other tiles have room, with as many rows as are multiplied at once."""
    terms = frozenset(term for node in sums if isinstance(node, Reduce) for term in node.operands)
    inner, row = frozenset(draft.inner), draft.grid[-1]
    for node in graph.nodes:
        axes = node.axes | (frozenset(getattr(node, "over", ())) if node not in sums else frozenset())
        size = math.prod(power_of_two(axis.size) for axis in axes & inner) * (LEAST if row in axes else 1)
        if node not in terms and row in axes and size > draft.policy.blocks.piece:
            return False
    return True
