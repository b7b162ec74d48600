"""Results of one loop, or made of its results nearby: one walk through the loop tells what holds for all of them."""

from __future__ import annotations

from collections.abc import Hashable

from jaxpr2triton.graph.live import needed_carries
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.ir.scans import LOOPS, scan_of, scans_in
from jaxpr2triton.plan.partition.cuts import Cuts

WORTH_LOOKING = 8  # roots; fewer are looked at one by one
NEARBY = 32  # equations between a loop and what is made of its results


def alike(cuts: Cuts) -> dict[Var, list[Var]]:
    """The roots that need the same carried values of the same loops, and little else, by each of them."""
    if not scans_in(cuts.jaxpr):
        return {}
    found: dict[Hashable, list[Var]] = {}
    known: dict[int, dict[int, int]] = {}
    for root in cuts.roots:
        if (needs := _needs(cuts, root, known)) is not None:
            found.setdefault((needs, root.aval.shape), []).append(root)
    return {root: batch for batch in found.values() if len(batch) >= WORTH_LOOKING for root in batch}


def _needs(cuts: Cuts, root: Var, known: dict[int, dict[int, int]]) -> tuple[Hashable, ...] | None:
    """Which loops a root reads, and which of their carried values, as bits; None if they are far away.

    `known` is what was found for other roots, by the positions of the loops.
    """
    results: dict[int, list[Var]] = {}
    seen: set[Var] = set()
    stack = [root]
    while stack:
        var = stack.pop()
        if var in seen or not cuts.is_inside(var) or (var in cuts.loaded and var is not root):
            continue
        if len(seen) == NEARBY:
            return None
        seen.add(var)
        eqn = cuts.maker(var)
        if eqn.primitive.name in LOOPS:
            results.setdefault(cuts.makers[var], []).append(var)
        else:
            stack.extend(variables(eqn.invars))
    if not results:
        return None
    return tuple(
        (number, needed_carries(scan_of(cuts.jaxpr.eqns[number]), wanted, known.setdefault(number, {})))
        for number, wanted in sorted(results.items())
    )
