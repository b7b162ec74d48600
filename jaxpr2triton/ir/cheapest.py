"""The cheapest values from which others can be computed: a minimum cut between what comes in and what is asked for.

x ─→ mean ─→ x-mean ─→ var ─→ rstd        asked for: x-mean, rstd, normal
 ╲            ╱  ╲                        kept:      x (an input), mean, rstd
  ╲──────────╱    ╲─→ normal = (x-mean)·rstd
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import networkx

from jaxpr2triton import policy
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import variables

_START, _END = "inputs", "asked for"


def price(aval: Any, is_there: bool) -> int:
    """Bytes moved, with a little on top for memory taken for it alone."""
    nbytes = math.prod(aval.shape) * aval.dtype.itemsize
    return 256 * nbytes * (policy.COMMON.byte_read if is_there else policy.COMMON.byte_stored)


def price_of_products(eqn: Any) -> int:
    """The bytes that are read in the time that a contraction takes, in the same unit."""
    products = math.prod(eqn.outvars[0].aval.shape) * terms_of(eqn)
    return 256 * products * policy.COMMON.byte_read // policy.COMMON.products_of_a_byte


def cheapest(
    asked: Iterable[Any],
    order: Iterable[Any],
    cost: Callable[[Any], int],
    operands: Callable[[Any], Sequence[Any] | None],
    work: Callable[[Any], int] = lambda var: 0,
) -> tuple[Any, ...]:
    """The variables to keep, as they stand in `order`.

    `operands` of a variable are what it can be computed from again, which costs its `work`; None if it can only be
    kept. Of cuts of the same cost the one of fewer variables wins, and then the one nearest to what is asked for:
    `tanh` keeps its output, not its input.
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from((_START, _END))
    todo = list(asked)
    for var in todo:
        graph.add_edge((var, "out"), _END)
    seen: set[Any] = set()
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        graph.add_edge((var, "in"), (var, "out"), capacity=cost(var) + 1)
        sources = operands(var)
        if sources is None:
            graph.add_edge(_START, (var, "in"))
            continue
        if again := work(var):
            graph.add_edge(_START, (var, "in"), capacity=again)
        for source in variables(sources):
            graph.add_edge((source, "out"), (var, "in"))
            todo.append(source)
    # networkx returns the cut nearest its sink: the sink's side is what still reaches it after the flow
    _, (_, behind) = networkx.minimum_cut(graph, _START, _END)
    return tuple(var for var in order if var in seen and (var, "in") not in behind and (var, "out") in behind)
