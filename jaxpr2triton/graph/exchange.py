"""What programs of one kernel show each other: written into memory, and read when all of them have met.

    x: f32[128,2048] carried, its rows shared out          tl.store(shown_ptr + turn * 262144 + row * 2048 + lane, x)
    y = exchange[dims=(0, 1) shared=(0,)] x turn     →     _all_meet(met_ptr, 128)
    … y at [row + 1, 0]                                    y = tl.load(shown_ptr + turn * 262144 + (row + 1) * 2048)

Along `dims` any index may be wanted, by any program. Along `shared` each program has a part, and writes that; of the
others of `dims` it has all. What is wanted where a program has it itself is no read of memory. There are two buffers,
which take turns in the steps of a loop: whoever writes one again has met all others since they have read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.demands import Demands
from jaxpr2triton.graph.keep import read_of
from jaxpr2triton.graph.nodes import (
    Demand,
    Exchange,
    Graph,
    Kept,
    Node,
    Place,
    Store,
    axes_in,
    axes_of,
    changed,
    operands_of,
    with_operands,
)
from jaxpr2triton.graph.reads import Shown, every_place
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Eqn


def ask(demands: Demands, number: Number, eqn: Eqn, wanted: Sequence[Demand]) -> None:
    """Ask for what a program has, along the axes of what its loop carries."""
    (operand, turn), (out,) = eqn.invars, eqn.outvars
    dims, shared = eqn.params["dims"], eqn.params["shared"]
    written = demands.choose.reduction(number, operand, dims, demands.choose.steps, [None] * len(dims))
    parts = frozenset(axes_in(tuple(written[dims.index(d)] for d in shared), ()))
    demands.reduced_axes.update(axis for axis in axes_in(written, ()) if axis not in parts)
    over = tuple(dict.fromkeys(axis for axis in axes_in(written, ()) if axis not in demands.unrolled))
    which = demands.number(turn, (), (0, 1), False)
    for place, guard in wanted:
        usual = tuple(written[dims.index(d)] if d in dims else index for d, index in enumerate(place))
        places = tuple(every_place(usual, demands.unrolled))
        reads = [demands.want(operand, each, ()) for each in places]
        demands.reads[out, (place, guard)] = Shown(
            number, tuple((which, *each) for each in places), reads, over, parts & frozenset(over)
        )


def build(builder: Builder, eqn: Eqn, shown: Shown, demand: Demand) -> Node:
    """What is read at one place, after all programs have written; or what a program has there itself."""
    place, guard = demand
    operands = tuple(builder.node(*read) for read in shown.operands)
    (which, *_), *_ = shown.places
    at = (which, *place)
    if not guard and at in shown.places:
        return operands[shown.places.index(at)]
    dtype, needs = np.dtype(eqn.outvars[0].aval.dtype), builder.needs([which])
    axes = axes_of((*operands, *needs)).union(*(axes_in(each, ()) for each in shown.places)) - frozenset(shown.over)
    exchange = builder.make(
        ("exchange", shown.number, shown.places, operands),
        lambda n: Exchange(
            n, axes, dtype, eqn, operands, shown.over, shown.places, shown.number, shared=shown.shared, needs=needs
        ),
    )
    return read_of(builder, exchange, (at, guard))


def shown_at_once(graph: Graph) -> dict[Exchange, tuple[Exchange, ...]]:
    """For all that programs show each other what they can show with it, so that they meet once: what none of it needs
    what is read behind that meeting for, in the same step.
    """
    rounds: dict[Node, int] = {}
    for node in graph.nodes:
        before = max((rounds[operand] for operand in operands_of(node)), default=0)
        rounds[node] = before + (isinstance(node, Kept) and isinstance(node.keep, Exchange))
    groups: dict[tuple[frozenset[Axis], int], list[Exchange]] = {}
    for exchange in graph.of_kind(Exchange):
        groups.setdefault((exchange.axes, rounds[exchange]), []).append(exchange)
    return {each: tuple(group) for group in groups.values() for each in group}


def is_spread_out(graph: Graph) -> bool:
    """Whether programs show each other anything."""
    return any(True for _ in graph.of_kind(Exchange))


def without_unread(graph: Graph) -> Graph:
    """The graph without what is shown and nobody reads: of the rows of a stencil those within a part."""
    reads: dict[tuple[int, ...], list[Place]] = {}
    for kept in graph.of_kind(Kept):
        reads.setdefault(kept.keep.slot, []).append(kept.place)
    standing: dict[Node, Node] = {}
    for node in graph.nodes:
        now = with_operands(node, standing)
        if isinstance(now, Exchange):
            pairs = zip(now.places, now.operands)
            read = [(at, value) for at, value in pairs if any(_may_be(at, place) for place in reads.get(now.slot, ()))]
            if 0 < len(read) < len(now.places):
                now = changed(now, places=tuple(at for at, _ in read), operands=tuple(value for _, value in read))
        standing[node] = now
    stores = tuple(Store(s.output, s.place, standing[s.value]) for s in graph.stores)
    computed = {key: standing[node] for key, node in graph.computed.items()}
    return Graph(tuple(standing[node] for node in graph.nodes), stores, computed)


def _may_be(written: Place, read: Place) -> bool:
    """Whether what is written at one place may be read at another one."""
    bounds = (zip(one.bounds, other.bounds) for one, other in zip(written, read))
    return all(max(lows) <= min(highs) for lows, highs in bounds)
