"""Rewrite: a long reduction with few results becomes two, so that many programs share the work.

    r:f32[64] = reduce_sum[axes=(0,)] a:f32[100000,64]
        →
    p:f32[196,512,64] = reshape (pad a)                 # chunks; the padding is the neutral element
    q:f32[196,64]     = boundary (reduce_sum[axes=(1,)] p)
    r:f32[64]         = reduce_sum[axes=(0,)] q

Padding and reshaping only change the index that is asked for: nothing is copied. Where the last chunk is a short one,
what is loaded for it is masked. The order of additions is fixed, so results repeat. Of what looks for a place each
chunk has its best element, and where that is. Left alone are reductions whose result another one of the kernel reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import jax
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.graph.nodes import Load, Reduce
from jaxpr2triton.graph.space import Space, feeds_a_reduction
from jaxpr2triton.hardware import LINE
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.region import boundary_p, chunked_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.criteria import is_chain, sums_of_results
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.in_two import flattened, law_of, parts_of, states_of
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.reductions import TABLE

Shared = dict[Hashable, tuple[Sequence[jax.Array], list[jax.Array]]]  # operands, which are kept, and their parts
Rewritten = Callable[..., jax.Array | list[jax.Array]]  # operands → the result of an equation, or all of its results


@dataclass(frozen=True)
class Split:
    """A reduction in two steps: which of its dimensions, next to each other, are cut into chunks of `size`."""

    dims: tuple[int, ...]
    length: int
    size: int
    free: tuple[int, ...] = ()  # all that could have been cut
    outermost: bool = False  # the one dimension that is cut comes first: the lanes of a loop

    @property
    def chunks(self) -> int:
        """1 is as good as no split."""
        return -(-self.length // self.size)


def to_split(cuts: Cuts) -> dict[Eqn, Split]:
    """The reductions that can be done in two steps, and how.

    r:f32[64] = reduce_sum[axes=(0,)] a:f32[100000,64]      →       Split(dims=(0,), length=100000, size=512)
    """
    left_whole = _left_whole(cuts)
    numbers = {eqn: (number,) for number, eqn in enumerate(cuts.jaxpr.eqns)}
    found: dict[Eqn, Split] = {}
    for root in cuts.roots:
        space = cuts.spaces[root]
        if space.inner or space.steps or sums_of_results(space, cuts.policy) or is_chain(space, cuts.policy):
            continue
        inner = feeds_a_reduction(space.graph)
        walked = (axis for other in inner for axis in other.over)  # for each element that is reduced
        below = space.swept_axes.union(walked)
        for node in space.graph.of_kind(Reduce):
            eqn = node.eqn
            all_at_once = space.parallel == math.prod(axis.size for axis in node.axes)
            if node in inner or eqn in left_whole or eqn.primitive.name not in TABLE or not all_at_once:
                continue
            axes = zip(eqn.params["axes"], space.chosen[numbers[eqn]])
            free = tuple(sorted(d for d, axis in axes if axis not in below))  # the others are wanted whole
            if free:
                apart = math.prod(axis.size for axis in below)
                found[eqn] = _split(eqn, free, _adds_neighbours(space, node), apart, cuts.policy)
    return found


def _left_whole(cuts: Cuts) -> set[Eqn]:
    """What was split before, and what some program walks anyway."""
    boundaries = [eqn for eqn in cuts.jaxpr.eqns if eqn.primitive is boundary_p]
    halves = {atom for eqn in boundaries for atom in (eqn.invars[0], eqn.outvars[0])}
    found = {eqn for eqn in cuts.jaxpr.eqns if not halves.isdisjoint(variables([*eqn.invars, *eqn.outvars]))}
    walked = (space.graph.of_kind(Reduce) for space in cuts.spaces.values() if space.inner)
    return found | {node.eqn for nodes in walked for node in nodes}


def _adds_neighbours(space: Space, node: Reduce) -> bool:
    """Whether a reduction runs over what lies next to each other in memory."""
    over = frozenset(node.over)
    return any(load.place and load.place[-1].axes & over for load in space.graph.of_kind(Load))


def runs(dims: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """`(0, 1, 3)` → `(0, 1)`, `(3,)`: dimensions that lie next to each other can be flattened without moving any."""
    start = 0
    for end in range(1, len(dims) + 1):
        if end == len(dims) or dims[end] != dims[end - 1] + 1:
            yield tuple(dims[start:end])
            start = end


def size_along(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


def _split(eqn: Eqn, free: tuple[int, ...], rows: bool, work: int, policy: Policy) -> Split:
    """`rows` says that neighbours are added, and `work` elements are walked for each one that is reduced."""
    shape = eqn.invars[0].aval.shape
    outer, *others = runs(free)
    dims = max([outer, *others], key=lambda run: size_along(shape, run))
    length = size_along(shape, dims)
    chunks = _chunks(eqn, length, rows, work * size_along(shape, free) // length, policy)
    if chunks > 1 and others and chunks <= size_along(shape, outer) and are_apart(eqn, outer, policy):
        return Split(outer, size_along(shape, outer), 1, free)
    return Split(dims, length, _size(length, chunks), free)


def held_chunks(eqn: Eqn, split: Split, policy: Policy) -> Split | None:
    """In chunks that a program can hold, to read them once."""
    shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
    results = eqn.outvars[0].aval.size
    columns = 1 if len(shape) - 1 in axes else min(results, policy.blocks.across)
    room = policy.blocks.resident // (columns * with_each(eqn, split.dims))
    return replace(split, size=min(split.size, 1 << room.bit_length() - 1)) if room else None


def _size(length: int, chunks: int) -> int:
    """Lanes, or steps of a loop, without a rest."""
    return 1 << round(math.log2(length / chunks)) if chunks > 1 else length


def are_apart(eqn: Eqn, dims: tuple[int, ...], policy: Policy) -> bool:
    """Whether each index of these dimensions is a chunk of its own: enough is summed for it along other ones."""
    shape = eqn.invars[0].aval.shape
    return size_along(shape, dims) <= policy.splits.elements // 2 and with_each(eqn, dims) >= policy.splits.rows


def with_each(eqn: Eqn, dims: tuple[int, ...]) -> int:
    return size_along(eqn.invars[0].aval.shape, [d for d in eqn.params["axes"] if d not in dims])


def _chunks(eqn: Eqn, length: int, rows: bool, work: int, policy: Policy) -> int:
    """How many there are to be."""
    results, least = eqn.outvars[0].aval.size, policy.splits.elements
    if length * results * work <= 2 * policy.cuts.small:
        return 1
    programs = results if rows else max(1, results // LINE)
    if policy.keeps_busy(programs):
        return 1
    columns = 1 if rows else min(results, policy.blocks.across)
    most = length // max(least // (columns * work), 1)
    if programs * length <= least // 2 and work >= least:
        return length  # rows that are long are programs of their own
    return max(1, min(4 * policy.target.processors // programs, most))


@dataclass(frozen=True)
class Chunked:
    """An array of which some dimensions, next to each other, are seen as chunks of `size` rows."""

    dims: tuple[int, ...]
    size: int


def split_reductions(
    cuts: Cuts,
    jaxpr: Closed,
    splits: dict[Eqn, Split],
    chunked: dict[Var, Chunked],
    others: Mapping[Eqn, Rewritten] = MappingProxyType({}),
) -> Closed:
    """The same program with those reductions in two steps, those outputs seen in chunks, and others written anew."""
    inner = jaxpr.jaxpr

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(inner.invars, args))
        long = {eqn: split for eqn, split in splits.items() if split.chunks > 1}
        anew: dict[Eqn, Rewritten] = dict(others)
        shared: Shared = {}
        anew |= {eqn: partial(in_two, shared, eqn, split) for eqn, split in long.items()}
        run(inner.eqns, env, lambda eqn, values: _results(anew[eqn](*values)) if eqn in anew else None)
        shown = {root: seen_in_chunks(env[root], how, cuts.maker(root)) for root, how in chunked.items()}
        run([view for view in cuts.views if view.invars[0] in shown], shown)
        env.update(shown)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _results(made: jax.Array | list[jax.Array]) -> list[jax.Array]:
    return made if isinstance(made, list) else [made]


def seen_in_chunks(value: jax.Array, how: Chunked, maker: Eqn) -> jax.Array:
    """A value as programs write it by chunks, which stays what its maker has made: a gradient, say."""
    with source_of(maker):
        return _seen_in_chunks(value, how)


def _seen_in_chunks(value: jax.Array, how: Chunked) -> jax.Array:
    seen = chunked_p.bind(flattened(value, how.dims), dim=how.dims[0], size=how.size)
    return lax.reshape(seen, value.shape) if len(how.dims) > 1 else seen


def in_two(shared: Shared, eqn: Eqn, split: Split, *operands: jax.Array) -> jax.Array:
    """The result; all results of one reduction have their parts in common."""
    law, place = law_of(eqn), place_of_chunks(eqn, split)
    key = eqn.primitive, eqn.params.get("combine"), eqn.params["axes"], split, *map(id, operands)
    if key not in shared:
        cut = [_outermost(x, split) for x in law.lift(operands)]
        dims = (0,) if split.outermost else split.dims
        shared[key] = operands, states_of(law, cut, dims, split.size, _inside(eqn, split), place)
    _, states = shared[key]
    return law.end(law.fold(states, (place,)))


def _outermost(operand: jax.Array, split: Split) -> jax.Array:
    if not split.outermost:
        return operand
    (dim,) = split.dims
    return lax.transpose(operand, (dim, *(d for d in range(operand.ndim) if d != dim)))


def of_chunks(eqn: Eqn, split: Split, operand: jax.Array) -> jax.Array:
    """What each chunk has."""
    law = law_of(eqn)
    (made,) = law.fold([parts_of(operand, split.dims, split.size, *law.empty)], _inside(eqn, split))
    return made


def place_of_chunks(eqn: Eqn, split: Split) -> int:
    """Which dimension says what chunk it is."""
    return 0 if split.outermost else split.dims[0] - sum(d < split.dims[0] for d in eqn.params["axes"])


def along(eqn: Eqn, operand: jax.Array, place: int) -> jax.Array:
    """All chunks."""
    return reduced(eqn, [operand], [place])


def of_elements(eqn: Eqn, split: Split, made: jax.Array) -> jax.Array:
    """For each element what its chunk has."""
    shape, dims, reduced = eqn.invars[0].aval.shape, split.dims, _inside(eqn, split)
    flat = (*shape[: dims[0]], split.length, *shape[dims[-1] + 1 :])
    parts = (*flat[: dims[0]], split.chunks, split.size, *flat[dims[0] + 1 :])
    spread = lax.broadcast_in_dim(made, parts, [d for d in range(len(parts)) if d not in reduced])
    padded = lax.reshape(spread, (*flat[: dims[0]], split.chunks * split.size, *flat[dims[0] + 1 :]))
    return lax.reshape(lax.slice_in_dim(padded, 0, split.length, axis=dims[0]), shape)


def _inside(eqn: Eqn, split: Split) -> tuple[int, ...]:
    """The dimensions of `_parts` that each chunk reduces."""
    first, last = split.dims[0], split.dims[-1]
    if split.outermost:
        return (1, *(d + 1 if d > first else d + 2 for d in eqn.params["axes"] if d != first))
    before = [d for d in eqn.params["axes"] if d < first]
    after = [d + 2 - len(split.dims) for d in eqn.params["axes"] if d > last]
    return (*before, first + 1, *after)


def reduced(eqn: Eqn, operands: Sequence[jax.Array], axes: Sequence[int]) -> jax.Array:
    return eqn.primitive.bind(*operands, **{**eqn.params, "axes": tuple(axes)})
