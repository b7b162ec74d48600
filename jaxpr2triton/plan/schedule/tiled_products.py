"""Products with matrices that do not fit: which of their results are better made piece by piece, in memory.

dh = dz @ uᵀ                     for rows in range(0, 128, 32):
                                     tl.store(kept_ptr + rows, tl.sum(dz[None, :] * tl.load(u_ptr + …), axis=1))
                            →    tl.debug_barrier()
                                 dh = tl.load(kept_ptr + lane)

Where results lie side by side in such a matrix, threads lie along them, and each adds up its own. So that a piece is a
few terms of all results, what is multiplied is in memory as well:

z = h @ u                        tl.store(kept_ptr + lane, h)
                                 tl.debug_barrier()
                            →    for k in range(0, 128, 16):
                                     acc = acc + tl.load(kept_ptr + k) * tl.load(u_ptr + …)
                                 tl.store(kept1_ptr + row, tl.sum(acc, axis=1))

The result of a sum over a tile stands where that tile's rows do: many lanes of a warp hold the same number, and so do
they hold everything that is computed from it. What is read from memory stands one number a lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jaxpr2triton import policy
from jaxpr2triton.graph.facts import kinds_of
from jaxpr2triton.graph.joint_sums import SUMS, only_summed
from jaxpr2triton.graph.nodes import Graph, Kept, Load, Product, operands_of
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.graph.space import multiplied_in
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, flatten
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.plan.schedule.draft import Draft


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

    def of_one_program(var: Var) -> tuple[int, ...]:
        parallel = facts.carried - facts.held
        return tuple(d for d, kind in enumerate(kinds_of(facts.classes, var)) if kind not in parallel)

    for eqn in products:
        result = eqn.outvars[0]
        dims = of_one_program(result)
        if not _is_large(eqn, dims, least):
            continue
        while result in summed:
            result = sums[result]
        if result in readers:
            yield result, dims
            if (factor := _multiplied(eqn, scan)) is not None:
                yield factor, of_one_program(factor)


def _multiplied(product: Eqn, scan: Scan) -> Var | None:
    """What is multiplied with a matrix that no step changes, and in which results lie side by side."""
    given = {*scan.body.constvars, *(inside for _, inside in (*scan.consts, *scan.xs))}
    sums, _ = product.params["dimension_numbers"]
    for factor, matrix, summed in zip(product.invars, reversed(product.invars), reversed(sums)):
        last = len(matrix.aval.shape) - 1
        is_matrix = matrix in given and last not in summed and len(matrix.aval.shape) > len(summed)
        if is_matrix and not isinstance(factor, Literal) and factor not in given:
            return factor
    return None


def summed_by_threads(graph: Graph, draft: Draft, shapes: Sequence[tuple[int, ...]]) -> frozenset[Axis]:
    """The axes along which steps add up what they read of both factors, results being neighbours in the matrix."""
    found: set[Axis] = set()
    for node in multiplied_in(graph, draft.steps):
        for term in operands_of(node):
            factors = term.operands if isinstance(term, Product) else ()
            if all(isinstance(factor, Load | Kept) for factor in factors):
                loads = [factor for factor in factors if isinstance(factor, Load)]
                matrices = [load for load in loads if load.axes.isdisjoint(draft.steps)]
                over = frozenset(getattr(node, "over", ()))
                if any(over.isdisjoint(_neighbours(each, shapes)) for each in matrices):
                    found |= over
    return frozenset(found)


def _neighbours(load: Load, shapes: Sequence[tuple[int, ...]]) -> frozenset[Axis]:
    """The axes along which it reads what lies side by side."""
    place = flatten(load.place, shapes[load.buffer])
    return frozenset(atom for atom, times in place.terms if isinstance(atom, Axis) and times == 1)


def _is_large(product: Eqn, dims: Sequence[int], least: int) -> bool:
    rows, terms = math.prod(product.outvars[0].aval.shape[d] for d in dims), terms_of(product)
    return rows > 1 and rows * terms >= least and terms > policy.COMMON.few
