"""Sums over lanes of what the steps of a loop put out → parts of them, which the programs of the loop make.

    c, ys = scan f c0 xs                          # f32[4096], f32[30,4096]
    s:f32[30] = reduce_sum[axes=(1,)] ys
        →
    p:f32[16,30] = boundary (reduce_sum[axes=(1,)] (reshape (transpose ys)))
    s:f32[30] = reduce_sum[axes=(0,)] p

A program of the loop has the lanes of one chunk, so that what is summed is never written. What else the loop gives out
is seen in the same chunks. Left alone: what others read as well, and lanes that are not a multiple of about
`small_loop`, as many as a program has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
from jax import lax

from jaxpr2triton.graph.loops import results_of
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.walk import facts_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Literal, Var
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.plan.partition.companions import outputs_of
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import Chunked, Split, reduced, wide_of, with_each
from jaxpr2triton.rules.reductions import TABLE


@dataclass(frozen=True)
class InLoops:
    """The sums that loops make in parts, and what else these give out, in the same chunks."""

    rewritten: Mapping[Eqn, Callable[..., jax.Array]]
    chunked: Mapping[Var, Chunked]


def sums_in_loops(cuts: Cuts, splits: Mapping[Eqn, Split]) -> InLoops:
    """What loops can sum themselves, of all that can be summed in parts."""
    owners = {node.eqn: root for root in cuts.roots for node in cuts.spaces[root].graph.of_kind(Reduce)}
    found, seen = dict[Eqn, Callable[..., jax.Array]](), dict[Var, Chunked]()
    for eqn in cuts.inside:
        if eqn.primitive.name == "scan" and (made := _in_loop(cuts, scan_of(eqn), splits, owners)) is not None:
            found |= made.rewritten
            seen |= made.chunked
    return InLoops(found, seen)


def _in_loop(cuts: Cuts, scan: Scan, splits: Mapping[Eqn, Split], owners: Mapping[Eqn, Var]) -> InLoops | None:
    sums, others = _summed(cuts, scan, splits, owners)
    lanes = _parallel(cuts, scan)
    kinds = {kind for eqn in sums for kind in _kinds(cuts, eqn) if kind in lanes}
    if len(kinds) != 1 or not outputs_of(cuts).issuperset(others):
        return None
    (kind,) = kinds
    made = {eqn: split for eqn in sums if (split := _chunks(cuts, eqn, kind)) is not None}
    sizes = {split.size for split in made.values()}
    along = {root: [d for d, each in enumerate(cuts.classes.of(root)) if each == kind] for root in others}
    if len(made) < len(sums) or len(sizes) != 1 or any(len(dims) > 1 for dims in along.values()):
        return None
    (size,) = sizes
    return InLoops(
        {eqn: partial(_in_two, eqn, split) for eqn, split in made.items()},
        {root: Chunked((dims[0],), size) for root, dims in along.items() if dims},
    )


def _summed(
    cuts: Cuts, scan: Scan, splits: Mapping[Eqn, Split], owners: Mapping[Eqn, Var]
) -> tuple[list[Eqn], list[Var]]:
    """The sums of results of a loop that nobody else reads, and whatever else is written of it.

    No sums, if none is of what its steps put out: what it has in the end is written once.
    """
    results = {result for _, result, _ in results_of(scan) if result in cuts.spaces}
    plain = {owners[eqn] for eqn in splits} - {owners[eqn] for eqn in splits if TABLE[eqn.primitive.name].indexed}
    summed = {var for var in results if _is_read_by(cuts, var, plain)}
    others = [root for root in cuts.roots if id(scan.eqn) in cuts.spaces[root].loops and root not in summed]
    if summed.isdisjoint(result for _, result in scan.ys):
        return [], others
    sums = [eqn for eqn in splits if summed.intersection(loads_of(cuts, cuts.spaces[owners[eqn]]))]
    return sums, others


def _parallel(cuts: Cuts, scan: Scan) -> set[Hashable]:
    """The classes along which programs share out the loop, of what it gives out."""
    facts = facts_of(scan)
    return {
        cuts.classes.of(result)[d]
        for atom, result, offset in results_of(scan)
        if not isinstance(atom, Literal)
        for d, kind in enumerate(facts.of(atom), offset)
        if kind not in facts.held and kind in facts.carried
    }


def _is_read_by(cuts: Cuts, var: Var, roots: Iterable[Var]) -> bool:
    """Whether these kernels alone read a value, and nobody else wants it."""
    wanted = {*variables(cuts.jaxpr.outvars), *(atom for eqn in cuts.outside for atom in variables(eqn.invars))}
    wanted.update(atom for eqn in cuts.views for atom in variables(eqn.invars))
    loops = (atom for eqn in cuts.inside if eqn.primitive.name in LOOPS for atom in variables(eqn.invars))
    readers = {root for root in cuts.roots if var in loads_of(cuts, cuts.spaces[root])}
    return var not in wanted and var not in set(loops) and readers <= set(roots)


def _kinds(cuts: Cuts, eqn: Eqn) -> list[Hashable]:
    """The classes of the dimensions that are summed."""
    (operand,) = variables(eqn.invars)
    return [cuts.classes.of(operand)[d] for d in eqn.params["axes"]]


def _chunks(cuts: Cuts, eqn: Eqn, kind: Hashable) -> Split | None:
    """Chunks without a rest of about as many lanes as a program has."""
    (operand,) = variables(eqn.invars)
    dims = [d for d in eqn.params["axes"] if cuts.classes.of(operand)[d] == kind]
    most = cuts.policy.cuts.small_loop
    if len(dims) != 1:
        return None
    length = operand.aval.shape[dims[0]]
    each = with_each(eqn, (dims[0],))
    sizes = [size for size in (most, 2 * most, most // 2) if length % size == 0 and size < length]
    return Split((dims[0],), length, sizes[0]) if sizes and each == 1 else None


def _in_two(eqn: Eqn, split: Split, operand: jax.Array) -> jax.Array:
    """With the lanes first, as what else the loop gives out is cut into chunks."""
    (dim,), dtype = split.dims, eqn.outvars[0].aval.dtype
    order = (dim, *(d for d in range(operand.ndim) if d != dim))
    lanes = lax.transpose(lax.convert_element_type(operand, wide_of(dtype)), order)
    parts = lax.reshape(lanes, (split.chunks, split.size, *lanes.shape[1:]))
    inside = (1, *(order.index(d) + 1 for d in eqn.params["axes"] if d != dim))
    made = boundary_p.bind(reduced(eqn, parts, *inside), dim=0)
    return lax.convert_element_type(reduced(eqn, made, 0), dtype)
