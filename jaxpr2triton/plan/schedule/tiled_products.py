"""Products with matrices that do not fit: which of their results are better made piece by piece, in memory.

dh = dz @ uᵀ                     for rows in range(0, 128, 32):
                                     tl.store(kept_ptr + rows, tl.sum(dz[None, :] * tl.load(u_ptr + …), axis=1))
                            →    tl.debug_barrier()
                                 dh = tl.load(kept_ptr + lane)

The result of a sum over a tile stands where that tile's rows do: many lanes of a warp hold the same number, and so do
they hold everything that is computed from it. What is read from memory stands one number a lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jaxpr2triton import policy
from jaxpr2triton.graph.facts import kinds_of
from jaxpr2triton.graph.joint_sums import SUMS, only_summed
from jaxpr2triton.graph.walk import facts_of
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Var
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of


def large_products(jaxpr: Jaxpr, least: int) -> dict[Var, tuple[int, ...]]:
    """Variables of loops' bodies → the dimensions along which they are better made piece by piece.

    Only those are that come from matrices of `least` elements or more, and are sums of more than a few terms.
    """
    found: dict[Var, tuple[int, ...]] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in LOOPS:
            scan = scan_of(eqn)
            found |= dict(_in_body(scan, least))
            found |= large_products(scan.body, least)
    return found


def _in_body(scan: Scan, least: int) -> Iterator[tuple[Var, tuple[int, ...]]]:
    products = [eqn for eqn in scan.body.eqns if eqn.primitive.name == "dot_general"]
    if not products:
        return
    facts = facts_of(scan)
    summed = only_summed(scan.body)
    sums = {a: eqn.outvars[0] for eqn in scan.body.eqns if eqn.primitive.name in SUMS for a in variables(eqn.invars)}
    readers = {atom for eqn in scan.body.eqns if eqn.primitive is not keep_p for atom in variables(eqn.invars)}
    readers.update(variables([after for _, _, after, _ in scan.carries]))
    for eqn in products:
        result = eqn.outvars[0]
        apart = [kind in facts.carried - facts.held for kind in kinds_of(facts.classes, result)]
        dims = tuple(d for d, parallel in enumerate(apart) if not parallel)
        if not _is_large(eqn, dims, least):
            continue
        while result in summed:
            result = sums[result]
        if result in readers:
            yield result, dims


def _is_large(product: Eqn, dims: Sequence[int], least: int) -> bool:
    rows, terms = math.prod(product.outvars[0].aval.shape[d] for d in dims), terms_of(product)
    return rows > 1 and rows * terms >= least and terms > policy.COMMON.short_contraction
