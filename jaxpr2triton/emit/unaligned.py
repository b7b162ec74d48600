"""Matrices that a loop multiplies by: each thread has what goes into some results, and sums it by itself.

    w = tl.load(w_ptr + k[:, None] * 64 + col[None, :])       unaligned = tl.num_programs(2) - 1
    for t in range(512):                                 →    w = tl.load(w_ptr + unaligned + k[:, None] * 64 + …)
        h = f(tl.sum(w * h[:, None], axis=0))                 …

Triton lays a tile out as it is read best, some neighbours to a thread, and warps along what is left. Where neighbours
are results, that is what is summed: in each step warps would meet. At an address of which nothing is known, a thread
reads one number at a time, and all threads lie along the results. Where neighbours are summed, threads lie along what
is summed, and if that is a warp of them, all of it meets. So Triton is told that results are neighbours. It asks that
where it chooses where threads lie, and how much a thread reads at once, which is one number anyway.

    w = tl.load(w_ptr + row[:, None] * 64 + k[None, :])       w = tl.load(tl.max_contiguous(
    for t in range(512):                                 →        w_ptr + unaligned + row[:, None] * 64 + …, (64, 1)))
        h = f(tl.sum(w * h[None, :], axis=1))                 …

That makes reading slower, once, and each step faster.

Where no two lanes of a tile are neighbours in memory, as where a thread has two places side by side as variables,
Triton lays threads along the first dimension. They had better lie along the one whose places are nearest: what they
read is in fewer sectors, and what they exchange in as many banks of shared memory as there are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jaxpr2triton.emit.axes import grid_of
from jaxpr2triton.emit.text import Spelling, Tile
from jaxpr2triton.graph.nodes import Graph, Load, Node, Product, Reduce, Store
from jaxpr2triton.graph.order import Order
from jaxpr2triton.ir.index import Axis, Index, flatten
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.tree import expr

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Matrices:
    """What is read so."""

    order: tuple[Axis, ...]  # of the dimensions of tiles
    unaligned: frozenset[Load] = frozenset()
    rows: Mapping[Node, frozenset[Axis]] = field(default_factory=dict)  # of results, whose neighbours are summed


def zero_of(plan: Plan) -> ast.expr | None:
    """A number that is 0, and that Triton knows nothing of."""
    dim = next((dim for dim, programs in reversed([*enumerate(grid_of(plan.axes))]) if programs == 1), None)
    return None if dim is None else expr("tl.num_programs({}) - 1", dim)


def matrices_of(graph: Graph, order: Order, spell: Spelling, plan: Plan, inputs: Sequence[Buffer]) -> Matrices:
    """The tiles that loops multiply by, and no step changes, if each has one axis of results and one that is summed."""
    if plan.reload or plan.form is Form.DOT or zero_of(plan) is None:
        return Matrices(tuple(spell.order))
    found = [*_factors(graph, order, spell)]
    columns = {load for load, over in found if frozenset(spell.tile(load.axes)) - over <= _neighbours(load, inputs)}
    warp = plan.policy.target.warp_size
    rows = {load: frozenset(spell.tile(load.axes)) & over for load, over in found if load not in columns}
    rows = {load: over for load, over in rows.items() if all(spell.planned[axis].block >= warp for axis in over)}
    tiles, chosen = spell.order, dict[Load, frozenset[Axis]]()
    for load, summed in rows.items():
        found_order = _sorted(spell, {**chosen, load: summed})
        if found_order is not None:  # or no order is good for all
            tiles, chosen = found_order, {**chosen, load: summed}
    results: dict[Node, frozenset[Axis]] = {load: frozenset(spell.tile(load.axes)) - chosen[load] for load in chosen}
    return Matrices(tuple(tiles), frozenset({*columns, *chosen}), results)


def nearest_of(graph: Graph, spell: Spelling, plan: Plan, read: Shapes, written: Shapes) -> dict[Load | Store, Tile]:
    """The axes of what is read or stored of no neighbours, those along which lanes lie nearest last."""
    if zero_of(plan) is None or plan.form is not None:
        return {}
    places: list[tuple[Load | Store, Index]] = [
        *((load, flatten(load.place, read[load.buffer])) for load in graph.of_kind(Load)),
        *((store, flatten(store.place, written[store.output])) for store in graph.stores),
    ]
    found = ((node, _nearest(place, spell.tile(place.axes))) for node, place in places)
    return {node: axes for node, axes in found if axes}


def _nearest(place: Index, tile: Tile) -> Tile:
    apart = {axis: abs(place.coefficient(axis) or 0) for axis in tile}
    far = tuple(sorted(tile, key=lambda axis: -apart[axis]))
    return far if len(tile) > 1 and min(apart.values()) > 1 else ()


def _factors(graph: Graph, order: Order, spell: Spelling) -> Iterator[tuple[Load, frozenset[Axis]]]:
    """With the axes that they are summed along."""
    for node in graph.of_kind(Reduce):
        over, terms = frozenset(node.over), node.operands if order.loops(node) else ()
        factors = [factor for term in terms if isinstance(term, Product) for factor in term.operands]
        for factor in factors:
            if isinstance(factor, Load) and not order.loops(factor):
                tile = frozenset(spell.tile(factor.axes))
                if len(tile) == 2 and len(tile & over) == 1:
                    yield factor, over


def _sorted(spell: Spelling, rows: Mapping[Load, frozenset[Axis]]) -> list[Axis] | None:
    """The axes with those of results before those that are summed, and otherwise as they were."""
    before: dict[Axis, set[Axis]] = {axis: set() for axis in spell.order}
    for load, summed in rows.items():
        for axis in summed:
            before[axis].update(each for each in spell.tile(load.axes) if each not in summed)
    left, found = list(spell.order), list[Axis]()
    while left:
        first = next((axis for axis in left if before[axis].isdisjoint(left)), None)
        if first is None:
            return None
        left.remove(first)
        found.append(first)
    return found


def _neighbours(load: Load, inputs: Sequence[Buffer]) -> frozenset[Axis]:
    """The axes along which it reads what lies side by side."""
    place = flatten(load.place, inputs[load.buffer].shape)
    return frozenset(atom for atom, times in place.terms if isinstance(atom, Axis) and times == 1)
