"""Sums over lanes of what the steps of a loop put out → parts of them, which the programs of the loop make.

    c, ys = scan f c0 xs                          # f32[4096], f32[30,4096]
    s:f32[30] = reduce_sum[axes=(1,)] ys
        →
    p:f32[16,30] = boundary (reduce_sum[axes=(1,)] (reshape (transpose ys)))
    s:f32[30] = reduce_sum[axes=(0,)] p

So are all reductions by their laws, those of elements of several parts too. A program of the loop has the lanes of one
chunk, so that what is summed is never written. What else the loop gives out is seen in the same chunks. Left alone:
what others read as well, and lanes that are not a multiple of a warp's worth.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.graph.loops import results_of
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.ir.dataflow import made_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Literal, Var
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.plan.partition.companions import outputs_of
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import Chunked, Rewritten, Shared, Split, in_two, seen_in_chunks, with_each
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.reductions import TABLE


@dataclass(frozen=True)
class InLoops:
    """The sums that loops make in parts, and what else these give out, in the same chunks."""

    rewritten: Mapping[Eqn, Rewritten]
    chunked: Mapping[Var, Chunked]


def sums_in_loops(cuts: Cuts, splits: Mapping[Eqn, Split]) -> InLoops:
    """What loops can sum themselves, of all that can be summed in parts."""
    owners: dict[Eqn, set[Var]] = {}
    for root in cuts.roots:
        for node in cuts.spaces[root].graph.of_kind(Reduce):
            owners.setdefault(node.eqn, set()).add(root)
    found, seen = dict[Eqn, Rewritten](), dict[Var, Chunked]()
    for eqn in cuts.inside:
        if eqn.primitive.name == "scan" and (made := _in_loop(cuts, scan_of(eqn), splits, owners)) is not None:
            found |= made.rewritten
            seen |= made.chunked
    return InLoops(found, seen)


def _in_loop(cuts: Cuts, scan: Scan, splits: Mapping[Eqn, Split], owners: Mapping[Eqn, set[Var]]) -> InLoops | None:
    sums, others = _summed(cuts, scan, splits, owners)
    if sums:
        made = made_of(cuts.inside, (result for _, result, _ in results_of(scan)))
        late = [eqn for eqn in sums if not made.isdisjoint(variables(eqn.invars))]
        kinds = {kind for eqn in late for kind in _kinds(cuts, eqn)}.intersection(_parallel(cuts, scan))
        along = [eqn for eqn in sums if eqn in late or not kinds.isdisjoint(_kinds(cuts, eqn))]
        return _in_chunks(cuts, scan, along, others, *kinds) if len(kinds) == 1 else None
    beside, lanes = _sums_beside(cuts, scan), _parallel(cuts, scan)
    for kind in sorted(lanes, key=lambda each: -lanes[each]) if beside else ():
        sums = [eqn for eqn in beside if kind in _kinds(cuts, eqn)]
        if sums and (found := _in_chunks(cuts, scan, sums, _written_with(cuts, scan, sums), kind)) is not None:
            return found
    return None


def _in_chunks(cuts: Cuts, scan: Scan, sums: Sequence[Eqn], others: Sequence[Var], kind: Hashable) -> InLoops | None:
    """These sums in parts, and these values in the same chunks."""
    beside = programs_beside(cuts, scan, kind)
    made = {eqn: split for eqn in sums if (split := _chunks(cuts, eqn, kind, beside)) is not None}
    sizes = {split.size for split in made.values()}
    along = {root: [d for d, each in enumerate(cuts.classes.of(root)) if each == kind] for root in others}
    if len(made) < len(sums) or len(sizes) != 1 or any(len(dims) > 1 for dims in along.values()):
        return None
    (size,) = sizes
    chunked = {root: Chunked((dims[0],), size) for root, dims in along.items() if dims}
    outputs = outputs_of(cuts)
    read = {root: how for root, how in chunked.items() if root not in outputs}
    makers = dict.fromkeys(cuts.maker(root) for root in read)
    shared: Shared = {}
    rewritten: dict[Eqn, Rewritten] = {eqn: partial(in_two, shared, eqn, split) for eqn, split in made.items()}
    rewritten |= {eqn: partial(_with_chunks, eqn, read) for eqn in makers}
    return InLoops(rewritten, {root: how for root, how in chunked.items() if root in outputs})


def _with_chunks(eqn: Eqn, chunked: Mapping[Var, Chunked], *operands: jax.Array) -> list[jax.Array]:
    """What an equation makes; some of it is in memory, and was written in chunks."""
    results = bind_equation(eqn, operands)
    seen = [seen_in_chunks(x, chunked[var], eqn) if var in chunked else x for var, x in zip(eqn.outvars, results)]
    pairs = zip(eqn.outvars, seen)
    return [boundary_p.bind(x, dim=chunked[var].dims[0]) if var in chunked else x for var, x in pairs]


def _written_with(cuts: Cuts, scan: Scan, sums: Sequence[Eqn]) -> list[Var]:
    """What the kernels of a loop write besides, that does not wait for these sums."""
    waiting = made_of(cuts.inside, (var for eqn in sums for var in eqn.outvars))
    return [root for root in cuts.roots if id(scan.eqn) in cuts.spaces[root].loops and root not in waiting]


def _sums_beside(cuts: Cuts, scan: Scan) -> list[Eqn]:
    """The sums that the kernels of a loop make of what its steps put out."""
    computed = (space.computes for space in cuts.spaces.values() if id(scan.eqn) in space.loops)
    there = frozenset[int]().union(*computed)
    eqns = [eqn for eqn in cuts.inside if id(eqn) in there]
    late = made_of(eqns, (result for _, result in scan.ys))
    return [eqn for eqn in eqns if eqn.primitive.name in TABLE and not late.isdisjoint(variables(eqn.invars))]


def _summed(
    cuts: Cuts, scan: Scan, splits: Mapping[Eqn, Split], owners: Mapping[Eqn, set[Var]]
) -> tuple[list[Eqn], list[Var]]:
    """The sums of results of a loop that nobody else reads, and whatever else is written of it.

    No sums, if none is of what its steps put out: what it has in the end is written once.
    """
    results = {result for _, result, _ in results_of(scan) if result in cuts.spaces}
    waiting = {root for eqn, roots in owners.items() if eqn not in splits for root in roots}
    alone = {root for eqn in splits for root in owners[eqn]} - waiting
    summed = {var for var in results if _is_read_by(cuts, var, alone)}
    others = [root for root in cuts.roots if id(scan.eqn) in cuts.spaces[root].loops and root not in summed]
    if summed.isdisjoint(result for _, result in scan.ys) or not outputs_of(cuts).issuperset(others):
        return [], others
    readers = {root for root in cuts.roots if summed.intersection(loads_of(cuts, cuts.spaces[root]))}
    return [eqn for eqn in splits if not readers.isdisjoint(owners[eqn])], others


def programs_beside(cuts: Cuts, scan: Scan, kind: Hashable) -> int:
    """How many programs share out a loop at most along the other classes: those that no kernel of it sums over."""
    summed = {other for eqn in _sums_beside(cuts, scan) for other in _kinds(cuts, eqn)}
    lanes = _parallel(cuts, scan)
    return math.prod(size for other, size in lanes.items() if other != kind and other not in summed)


def _parallel(cuts: Cuts, scan: Scan) -> dict[Hashable, int]:
    """The classes along which programs share out the loop, of what it gives out, and how many elements they have."""
    facts = facts_of(scan)
    return {
        cuts.classes.of(result)[d]: facts.sizes[kind]
        for atom, result, offset in results_of(scan)
        if not isinstance(atom, Literal)
        for d, kind in enumerate(facts.of(atom), offset)
        if kind not in facts.held and kind in facts.carried and kind in facts.sizes
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
    operand = next(iter(variables(eqn.invars)))
    return [cuts.classes.of(operand)[d] for d in eqn.params["axes"]]


def _chunks(cuts: Cuts, eqn: Eqn, kind: Hashable, beside: int) -> Split | None:
    """Chunks without a rest, if a program adds up nothing else; `beside` programs have other lanes."""
    operand = next(iter(variables(eqn.invars)))
    dims = [d for d in eqn.params["axes"] if cuts.classes.of(operand)[d] == kind]
    if len(dims) != 1 or with_each(eqn, (dims[0],)) != 1:
        return None
    length = operand.aval.shape[dims[0]]
    size = lanes_of_a_chunk(cuts.policy, length, beside)
    return Split((dims[0],), length, size, outermost=True) if size is not None else None


def lanes_of_a_chunk(policy: Policy, length: int, beside: int) -> int | None:
    """About as many lanes as a program has, and fewer where that keeps processors busy that would be idle."""
    least = policy.target.warp_size
    if length < 4 * least:
        return None
    size = next((times * least for times in (8, 16, 4, 2, 1) if length % (times * least) == 0), length)
    while size == length or (size > least and not policy.keeps_busy(beside * length / size)):
        if size % 2 or size == least:
            return None
        size //= 2
    return size
