"""Whether the loops of a kernel fit within each other.

    g[j] = sum(f(x[i], y[j]))  over i          for i in …:                 what h is a sum of
    h[i] = sum(f(x[i], g[j]))  over j    →         for j in …:             … of each i
    out  = sum(h[i])           over i                  for i in …:         g[j] is a sum along the outermost loop

A value is written where the loops along its own axes are open, and no further in. One that is summed along a loop that
is open there has no place: i or j has to be lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxpr2triton.graph.nodes import Collected, Graph, Node, Recurrence, operands_of
from jaxpr2triton.graph.order import LoopKey, Order
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.index import Axis

Opened = tuple[Axis, ...]  # the loops that are open, outermost first


def fit_within_each_other(graph: Graph, looped: frozenset[Axis], axes: Sequence[Axis]) -> bool:
    """Whether no loop of such a kernel is within one along the same axis; `axes` gives their usual order."""
    order = Order(graph, looped)

    def home_of(each: tuple[Node, Opened]) -> tuple[Node, Opened | None]:
        node, around = each
        return node, _home(order.loops(node), around)

    def operands(each: tuple[Node, Opened]) -> Iterator[tuple[Node, Opened]]:
        node, home = home_of(each)
        if home is not None:
            within = home + _opened(_keys(node, order, axes))
            starts = node.starts if isinstance(node, Recurrence) else ()
            yield from ((operand, home if operand in starts else within) for operand in operands_of(node))

    def has_a_place(node: Node, home: Opened | None) -> bool:
        return home is not None and frozenset(home).isdisjoint(_opened(_keys(node, order, axes)))

    stores = ((store.value, _opened(order.keys(store, axes))) for store in graph.stores)
    return all(has_a_place(*home_of(each)) for each in reachable(stores, operands, home_of))


def _keys(node: Node, order: Order, axes: Sequence[Axis]) -> Sequence[LoopKey]:
    match node:
        case Recurrence():
            return (order.key(node),)
        case Collected():
            return order.keys(node, axes)
    return ()


def _opened(keys: Sequence[LoopKey]) -> Opened:
    return tuple(axis for key in keys for axis in key.opened)


def _home(loops: frozenset[Axis], around: Opened) -> Opened | None:
    """The loops that are open where a value is written: as few as can be; None if some of its own are not.

    So it is where an element of it is taken: f(x[i]) for one i, and no loop along i.
    """
    homes = (around[:count] for count in range(len(around) + 1) if loops <= frozenset(around[:count]))
    return next(homes, None)
