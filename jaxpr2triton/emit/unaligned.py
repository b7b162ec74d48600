"""Matrices whose columns are results: each thread has whole columns, and sums them by itself.

    w = tl.load(w_ptr + k[:, None] * 64 + col[None, :])       unaligned = tl.num_programs(2) - 1
    for t in range(512):                                 →    w = tl.load(w_ptr + unaligned + k[:, None] * 64 + …)
        h = f(tl.sum(w * h[:, None], axis=0))                 …

Triton lays a tile out as it is read best, some neighbours to a thread, and warps along what is left, which is what is
summed: in each step they would meet. At an address of which nothing is known, a thread reads one number at a time. That
makes reading slower, once, and each step faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton.emit.axes import grid_of
from jaxpr2triton.emit.text import Spelling
from jaxpr2triton.graph.nodes import Graph, Load, Product, Reduce
from jaxpr2triton.graph.order import Order
from jaxpr2triton.ir.index import Axis, flatten
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import Form, Plan


def zero_of(plan: Plan) -> str | None:
    """A number that is 0, and that Triton knows nothing of."""
    dim = next((dim for dim, programs in reversed([*enumerate(grid_of(plan.axes))]) if programs == 1), None)
    return None if dim is None else f"tl.num_programs({dim}) - 1"


def read_unaligned(
    graph: Graph, order: Order, spell: Spelling, plan: Plan, inputs: Sequence[Buffer]
) -> frozenset[Load]:
    """Of what loops multiply, and no step changes, the tiles whose neighbours belong to different sums."""
    if plan.reload or plan.form is Form.DOT or zero_of(plan) is None:
        return frozenset()
    found: set[Load] = set()
    for node in graph.of_kind(Reduce):
        over, terms = frozenset(node.over), node.operands if order.loops(node) else ()
        factors = [factor for term in terms if isinstance(term, Product) for factor in term.operands]
        for factor in factors:
            if isinstance(factor, Load) and not order.loops(factor):
                tile = frozenset(spell.tile(factor.axes))
                if len(tile) == 2 and len(tile & over) == 1 and tile - over <= _neighbours(factor, inputs):
                    found.add(factor)
    return frozenset(found)


def _neighbours(load: Load, inputs: Sequence[Buffer]) -> frozenset[Axis]:
    """The axes along which it reads what lies side by side."""
    place = flatten(load.place, inputs[load.buffer].shape)
    return frozenset(atom for atom, times in place.terms if isinstance(atom, Axis) and times == 1)
