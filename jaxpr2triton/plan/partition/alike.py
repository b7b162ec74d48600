"""Results of one loop, or made of its results nearby: one walk through the loop tells what holds for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

from jaxpr2triton.graph.live import needed_carries
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.ir.scans import LOOPS, scan_of, scans_in
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.sources import is_spread

WORTH_LOOKING = 8  # roots; fewer are looked at one by one
NEARBY = 32  # equations between a loop and what is made of its results


def alike(cuts: Cuts) -> dict[Var, list[Var]]:
    """The roots that need the same carried values of the same loops, and little else, by each of them."""
    if not scans_in(cuts.jaxpr):
        return {}
    spread = dict(_of_spread_loops(cuts))
    found: dict[Hashable, list[Var]] = {}
    known: dict[int, dict[int, int]] = {}
    for root in cuts.roots:
        if root not in spread and (needs := _needs(cuts, root, known)) is not None:
            found.setdefault((needs, root.aval.shape), []).append(root)
    return spread | {root: batch for batch in found.values() if len(batch) >= WORTH_LOOKING for root in batch}


def _of_spread_loops(cuts: Cuts) -> Iterator[tuple[Var, list[Var]]]:
    """Each result of a loop that is spread, with all of them: only together do programs share out what it carries."""
    for eqn in cuts.loops:
        if is_spread(eqn):
            batch = [var for var in eqn.outvars if var in cuts.roots]
            yield from ((root, batch) for root in batch)


def _needs(cuts: Cuts, root: Var, known: dict[int, dict[int, int]]) -> tuple[Hashable, ...] | None:
    """Which loops a root reads, and which of their carried values, as bits; None if they are far away.

    `known` is what was found for other roots, by the positions of the loops.
    """
    results: dict[int, list[Var]] = {}

    def operands(var: Var) -> Iterator[Var]:
        eqn = cuts.maker(var)
        below = variables(eqn.invars) if eqn.primitive.name not in LOOPS else ()
        return (each for each in below if cuts.is_inside(each) and each not in cuts.loaded)

    near = list(itertools.islice(reachable([root] if cuts.is_inside(root) else [], operands), NEARBY + 1))
    for var in near:
        if cuts.maker(var).primitive.name in LOOPS:
            results.setdefault(cuts.makers[var], []).append(var)
    if not results or len(near) > NEARBY:
        return None
    return tuple(
        (number, needed_carries(scan_of(cuts.jaxpr.eqns[number]), wanted, known.setdefault(number, {})))
        for number, wanted in sorted(results.items())
    )
