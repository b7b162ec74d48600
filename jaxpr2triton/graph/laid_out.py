"""Buffers of the kernel's own lie as they are written and read: neighbouring lanes at neighbouring places.

    kept float32[1000,100000,3]                            kept float32[1000,3,100000]
    tl.store(kept_ptr + t * 300000 + row * 3, x)      →    tl.store(kept_ptr + t * 300000 + row, x)
    tl.store(kept_ptr + t * 300000 + row * 3 + 1, y)       tl.store(kept_ptr + t * 300000 + 100000 + row, y)

Left alone: a buffer with lanes along its last dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jaxpr2triton.graph.nodes import Graph, Keep, Kept, Node, Place, Store, with_operands
from jaxpr2triton.ir.index import Axis


def lay_out(graph: Graph, lanes: Mapping[Axis, int]) -> Graph:
    """The graph with the dimensions of its buffers in another order; `lanes` has how many a tile has of an axis."""
    places: dict[tuple[int, ...], list[Place]] = {}
    for keep in graph.of_kind(Keep):
        places.setdefault(keep.slot, []).extend(keep.places)
    for kept in graph.of_kind(Kept):
        places[kept.keep.slot].append(kept.place)
    orders = {slot: order for slot, found in places.items() if (order := _order(found, lanes)) is not None}
    if not orders:
        return graph
    standing: dict[Node, Node] = {}
    for node in graph.nodes:
        node_now = with_operands(node, standing)
        match node_now:
            case Keep(slot=slot) if slot in orders:
                moved = tuple(_in_order(place, orders[slot]) for place in node_now.places)
                node_now = replace(node_now, places=moved, order=orders[slot])
            case Kept(keep=keep) if keep.slot in orders:
                node_now = replace(node_now, place=_in_order(node_now.place, orders[keep.slot]))
        standing[node] = node_now
    stores = tuple(Store(s.output, s.place, standing[s.value]) for s in graph.stores)
    computed = {key: standing[node] for key, node in graph.computed.items()}
    return Graph(tuple(standing[node] for node in graph.nodes), stores, computed)


def _order(places: Sequence[Place], lanes: Mapping[Axis, int]) -> tuple[int, ...] | None:
    """The dimension along which there are most lanes comes last, if none are along the last one."""
    dims = range(len(places[0]))
    most = [max((lanes.get(axis, 0) for place in places for axis in place[d].axes), default=0) for d in dims]
    if not any(most) or most[-1]:
        return None
    last = max(dims, key=lambda d: most[d])
    return (*(d for d in dims if d != last), last)


def _in_order(place: Place, order: Sequence[int]) -> Place:
    return tuple(place[d] for d in order)
