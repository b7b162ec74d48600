"""The cheapest values from which others can be computed: a minimum cut between what comes in and what is asked for.

x ─→ mean ─→ x-mean ─→ var ─→ rstd        asked for: x-mean, rstd, normal
 ╲            ╱  ╲                        kept:      x (an input), mean, rstd
  ╲──────────╱    ╲─→ normal = (x-mean)·rstd
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxpr2triton import policy
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.digraph import Edge, behind_cut
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var, nbytes_of
from jaxpr2triton.ir.scans import Body

_START, _END = "inputs", "asked for"


def price(aval: Any, is_there: bool) -> int:
    """Bytes moved, with a little on top for memory taken for it alone."""
    return 256 * nbytes_of(aval) * (policy.COMMON.byte_read if is_there else policy.COMMON.byte_stored)


def price_of_products(eqn: Any) -> int:
    """The bytes that are read in the time that a contraction takes, in the same unit."""
    products = eqn.outvars[0].aval.size * terms_of(eqn)
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
    todo = list(asked)
    edges: list[Edge] = [((var, "out"), _END, None) for var in todo]
    seen: set[Any] = set()
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        edges.append(((var, "in"), (var, "out"), cost(var) + 1))
        sources = operands(var)
        if sources is None:
            edges.append((_START, (var, "in"), None))
            continue
        if again := work(var):
            edges.append((_START, (var, "in"), again))
        for source in variables(sources):
            edges.append(((source, "out"), (var, "in"), None))
            todo.append(source)
    behind = behind_cut(edges, _START, _END)
    return tuple(var for var in order if var in seen and (var, "in") not in behind and (var, "out") in behind)


def cheapest_of_step(
    body: Body, asked: Iterable[Var], cost: Callable[[Var], int], again: Callable[[Var, Eqn], bool]
) -> tuple[Var, ...]:
    """`cheapest` in a step of a loop, where `again` says which equations may be done elsewhere for a variable."""
    made = body.dependences.definitions

    def operands(var: Var) -> Sequence[Any] | None:
        eqn = made.get(var)
        return eqn.invars if eqn is not None and again(var, eqn) else None

    return cheapest(asked, [*body.jaxpr.constvars, *body.jaxpr.invars, *made], cost, operands)
