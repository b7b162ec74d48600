"""Outputs that the programs that sum their rows can write as well, by chunks.

    p:f32[128,1024] = boundary (…)              # sums of the rows of a chunk
    y:f32[8191,1024] = mul …              →     y = chunked[dim=0 size=64] (mul …)

The backward pass of layer norm writes dx row by row and sums two products over all rows. As [chunk, row, column] all of
them belong to one kernel, in which a program walks the rows of its chunk and reads them once. The last chunk may be a
short one: rows beyond the end are masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import forward_equations
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var, elements
from jaxpr2triton.ir.region import boundary_p, chunked_p
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.plan.partition.split import Chunked, Split, are_apart, runs, size_along, with_each
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE


def companions(cuts: Cuts, splits: dict[Eqn, Split]) -> dict[Var, Chunked]:
    """What is to be seen in chunks; adjusts `splits` to fit."""
    outputs = outputs_of(cuts)
    written = [root for root in cuts.roots if root in outputs]
    loads = {root: frozenset(loads_of(cuts, cuts.spaces[root])) for root in cuts.roots}
    owners = {node.eqn: root for root in cuts.roots[::-1] for node in cuts.spaces[root].graph.of_kind(Reduce)}
    found: dict[Var, Chunked] = {}

    def join(eqn: Eqn, ways: Iterable[tuple[int, ...]], roots: Iterable[Var]) -> bool:
        shared, much = loads[owners[eqn]], cuts.policy.much / 4
        beside = [root for root in roots if _saves_much(much, shared & loads[root], splits[eqn])]
        joint = _in_chunks(cuts, eqn, splits[eqn], ways, beside, found)
        if joint is not None:
            splits[eqn], seen = joint
            found.update({root: how for root, how in seen.items() if root not in found})
        return joint is not None

    others = [eqn for eqn, split in list(splits.items()) if not join(eqn, runs(split.free), written)]
    for eqn in others:  # what sums all joins those that sum rows, in their chunks
        join(eqn, _parts_of_runs(splits[eqn].free), [root for root in written if root in found])
    return found


def _parts_of_runs(dims: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """`(0, 1, 3)` → `(0,)`, `(1,)`: those next to each other, but not all of them."""
    for run in runs(dims):
        for size in range(len(run) - 1, 0, -1):
            yield from (run[first : first + size] for first in range(len(run) - size + 1))


def _in_chunks(
    cuts: Cuts,
    eqn: Eqn,
    split: Split,
    ways: Iterable[tuple[int, ...]],
    beside: Sequence[Var],
    found: Mapping[Var, Chunked],
) -> tuple[Split, dict[Var, Chunked]] | None:
    """A sum in chunks of some of its dimensions, and the outputs that its programs write as well; None without any."""
    if not any(_has_all(cuts, root, eqn) for root in beside):
        return None
    for dims in ways:
        seen = _written_beside(cuts, eqn, dims, beside, found)
        if not any(_has_all(cuts, root, eqn) for root in seen):
            continue
        length = size_along(eqn.invars[0].aval.shape, dims)
        known = next((found[root].size for root in seen if root in found), None)
        size = known or _rows_to_share(cuts, eqn, split, dims, seen)
        if size < length:
            return Split(dims, length, size, split.free), {root: Chunked(there, size) for root, there in seen.items()}
    return None


def _written_beside(
    cuts: Cuts, eqn: Eqn, dims: tuple[int, ...], beside: Sequence[Var], found: Mapping[Var, Chunked]
) -> dict[Var, tuple[int, ...]]:
    """The outputs that have the rows of a sum and can be written with it, and along which dimensions they have them.

    One that is seen in chunks already is so along the same ones.
    """
    along = {root: there for root in beside if (there := _seen_along(cuts, root, eqn, dims))}
    ready = _ready(cuts, eqn, dims, along)
    return {root: along[root] for root in ready if root not in found or found[root].dims == along[root]}


def outputs_of(program: Program) -> set[Var]:
    """What is written for nobody but the caller, as it is or reshaped, and could be written in another order."""
    outputs = set(variables(program.jaxpr.outvars))
    for eqn in reversed(program.views):
        outputs |= {atom for atom in variables(eqn.invars) if eqn.outvars[0] in outputs}
    in_chunks = {eqn.outvars[0] for eqn in program.jaxpr.eqns if eqn.primitive is chunked_p}
    return outputs - in_chunks - {atom for eqn in program.outside for atom in variables(eqn.invars)}


def _saves_much(much: float, shared: frozenset[Var], split: Split) -> bool:
    """Whether reading these once saves much, or a launch of the two that there would be anyway."""
    return bool(shared) and (split.chunks > 1 or any(elements(operand) >= much for operand in shared))


def _ready(program: Program, eqn: Eqn, dims: tuple[int, ...], roots: Iterable[Var]) -> list[Var]:
    """The outputs that can be written while these rows are summed: they wait for no sum of rows, nor for parts of one,
    that the operand does not wait for.
    """
    summed = variables(eqn.invars)
    kinds = {program.classes.of(part)[d] for part in summed for d in dims}

    def transfer(other: Eqn, before: list[frozenset[Eqn]]) -> frozenset[Eqn]:
        reduced = {program.classes.of(operand)[d] for operand in variables(other.invars) for d in _reduced_dims(other)}
        sums = other.primitive is boundary_p or not kinds.isdisjoint(reduced)
        return frozenset((other,) if sums else ()).union(*before)

    waits = forward_equations(program.jaxpr.eqns if roots else (), transfer)
    there = frozenset[Eqn]().union(*(waits.get(part, frozenset()) for part in summed))
    return [root for root in roots if waits.get(root, frozenset()) <= there]


def _reduced_dims(eqn: Eqn) -> tuple[int, ...]:
    return eqn.params["axes"] if isinstance(TABLE.get(eqn.primitive.name), Reduction) else ()


def _has_all(program: Program, root: Var, eqn: Eqn) -> bool:
    """Whether an output has all dimensions along which there are sums, so that these fit its kernel."""
    sums = eqn.outvars[0]
    kinds = {kind for kind, size in zip(program.classes.of(sums), sums.aval.shape) if size != 1}
    return kinds <= set(program.classes.of(root))


def _seen_along(cuts: Cuts, root: Var, eqn: Eqn, dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions of an output along which it has the rows that are summed, if it has and may be cut there."""
    operand = next(iter(variables(eqn.invars)))
    kinds = [cuts.classes.of(operand)[d] for d in dims]
    sizes = [operand.aval.shape[d] for d in dims]
    space = cuts.spaces[root]
    for first in range(len(root.aval.shape) - len(dims) + 1):
        there = tuple(range(first, first + len(dims)))
        alike = [cuts.classes.of(root)[d] for d in there] == kinds and [root.aval.shape[d] for d in there] == sizes
        if alike and not any(space.places[0][d].axes & space.inner for d in there):
            return there
    return None


def _rows_to_share(
    cuts: Cuts, eqn: Eqn, split: Split, dims: tuple[int, ...], seen: Mapping[Var, tuple[int, ...]]
) -> int:
    """The rows of a chunk; all of them where that would leave too few programs."""
    policy, splits, shape = cuts.policy, cuts.policy.splits, eqn.invars[0].aval.shape
    length = size_along(shape, dims)
    beside = max(_programs_beside(root, cuts.spaces[root], there) for root, there in seen.items())
    most = 3 * policy.cuts.held // 4  # elements of a chunk: it may become an eighth longer
    wanted = max(split.chunks, policy.target.processors // beside, -(-math.prod(shape) // (beside * most)))
    least = max(-(-length // wanted), -(-splits.rows // with_each(eqn, dims)))
    size = 1 if are_apart(eqn, dims, policy) else rows_of_chunk(length, least)
    programs = -(-length // size) * beside
    few = not policy.keeps_busy(4 * programs) and math.prod(shape) > programs * policy.cuts.small
    return length if few else size


def _programs_beside(root: Var, space: Space, dims: tuple[int, ...]) -> int:
    """How many programs there would be without chunks; the last dimension is walked by each, or shared out by few."""
    last = len(root.aval.shape) - 1
    return math.prod(
        size
        for d, (size, index) in enumerate(zip(root.aval.shape, space.places[0]))
        if d not in dims and d != last and not index.axes & space.inner
    )


def rows_of_chunk(length: int, least: int) -> int:
    """How long a chunk is at least: a round number, so that a tile of rows seldom ends within it.

    It may be an eighth longer than that if no chunk is a short one then.
    """
    step = 1 << max((least // 8).bit_length() - 1, 0)
    least = min(-(-least // step) * step, length)
    return next((size for size in range(least, least + least // 8 + 1, step) if length % size == 0), least)
