"""Rewrite: what is summed of many results of a contraction is summed by the programs that make them, block by block.

    y:f32[4096,256] = dot_general x w              c = dot_general x w
    s:f32[256] = reduce_sum[axes=(0,)] (tanh y)    y = boundary (chunked[dim=0 size=64] c)
                                               →   p:f32[64,256] = boundary (reduce_sum[axes=(1,)] (reshape (tanh c)))
                                                   s = reduce_sum[axes=(0,)] p

Where nobody else reads y, it is not written. The order of additions is fixed, so results repeat.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax
from jax import lax

from jaxpr2triton import policy as numbers
from jaxpr2triton._compat import bind_equation
from jaxpr2triton.graph.nodes import Load, Reduce, operands_of
from jaxpr2triton.graph.sides import Axes, Sides, is_small, sides_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import needed_for, reachable
from jaxpr2triton.ir.evaluate import read, run, variables
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Var
from jaxpr2triton.ir.region import boundary_p, chunked_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.criteria import has_blocks_enough
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.in_two import flattened, law_of, states_of
from jaxpr2triton.plan.partition.split import Split
from jaxpr2triton.rules.products import LEAST
from jaxpr2triton.rules.reductions import TABLE


@dataclass(frozen=True)
class Blocks:
    """The dimensions of a result, next to each other, of which a program makes `size` rows."""

    dims: tuple[int, ...]
    size: int
    sums: tuple[Eqn, ...]  # of these rows


def summed_products(cuts: Cuts, splits: Mapping[Eqn, Split], but: Container[Eqn]) -> dict[Var, Blocks]:
    """The results of contractions, but for some, of which long sums are made, in two steps.

    And what is in memory only in order not to be computed again and again, whatever it is made of.
    """
    found: dict[Var, Blocks] = {}
    owners = {node.eqn: (node, root) for root in cuts.roots for node in cuts.spaces[root].graph.of_kind(Reduce)}
    for eqn, split in splits.items():
        if split.chunks == 1 or TABLE[eqn.primitive.name].several:
            continue
        node, root = owners[eqn]
        assert isinstance(node, Reduce)
        source = _source_of(cuts, node)
        if source is None or any(node.eqn in but for node in cuts.spaces[source].graph.of_kind(Reduce)):
            continue
        blocks = found.get(source) or _blocks_of(cuts, source, eqn)
        if source in cuts.computed_once:
            blocks = found.get(source, Blocks(split.dims, split.size, ()))
        if blocks is not None and set(blocks.dims) <= set(eqn.params["axes"]):
            found[source] = Blocks(blocks.dims, blocks.size, (*blocks.sums, eqn))
    return found


def _source_of(cuts: Cuts, node: Reduce) -> Var | None:
    """The result that is summed, or what is made of it element by element; None if more has to come first."""
    loads = _loads_of(node)
    made = [load for load in loads or () if cuts.numbered[load.buffer] in cuts.spaces]
    if not made:
        return None
    last = max(made, key=lambda load: cuts.depths[cuts.numbered[load.buffer]])
    source = cuts.numbered[last.buffer]
    others = {cuts.numbered[load.buffer] for load in made} - {source}
    if any(cuts.depths[other] >= cuts.depths[source] for other in others):
        return None
    (operand,) = node.eqn.invars
    axes = [index.axes for index in last.place]
    plain = all(len(each) == 1 and index == of_axis(*each) for index, each in zip(last.place, axes))
    same = [d for d, (axis,) in enumerate(axes) if axis in node.over] if plain else []
    is_whole = operand.aval.shape == source.aval.shape and same == sorted(node.eqn.params["axes"])
    return source if is_whole and all(load.place == last.place for load in made if load.buffer == last.buffer) else None


def _loads_of(node: Reduce) -> list[Load] | None:
    """What is read for a sum; None if something else is not computed element by element."""
    below = list(reachable(node.operands, operands_of))
    if any(hasattr(each, name) for each in below for name in ("over", "recurrence", "axis")):
        return None
    return [each for each in below if isinstance(each, Load)]


def _blocks_of(cuts: Cuts, source: Var, eqn: Eqn) -> Blocks | None:
    """The rows that each program makes; None if the result is of no two sides, or one of them has few."""
    space, policy = cuts.spaces[source], cuts.policy
    in_pieces = {eqn.invars[0] for eqn in cuts.jaxpr.eqns if eqn.primitive is boundary_p}
    if space.inner or space.steps or source in in_pieces:
        return None
    roots, unrolled = frozenset(space.axes), policy.axes.unrolled_sum
    reductions = [node for node in space.graph.of_kind(Reduce) if not is_small(node, unrolled)]
    sides = [sides_of(node, roots, unrolled) for node in reductions]
    first = next(iter(sides), None)
    if first is None or any(each is None or not each.fits(first) for each in sides):
        return None
    if min(_size(first.rows), _size(first.columns)) < LEAST:
        return None
    terms = max(_size(node.over) for node in reductions)
    sizes = (_blocks_along(cuts, source, eqn, side, terms) for side in _in_order(space, first))
    return next((blocks for blocks in sizes if blocks is not None), None)


def _in_order(space: Space, sides: Sides) -> list[Axes]:
    """The side that the result begins with, and the other one."""
    (place,) = space.places
    return sorted((sides.rows, sides.columns), key=lambda side: [not index.axes & side for index in place])


def _blocks_along(cuts: Cuts, source: Var, eqn: Eqn, side: Axes, terms: int) -> Blocks | None:
    """The rows of one side, if all of them are summed and there are enough."""
    policy, (place,) = cuts.policy, cuts.spaces[source].places
    dims = tuple(d for d, index in enumerate(place) if index.axes & side)
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)) or not set(dims) <= set(eqn.params["axes"]):
        return None
    length, others = _size(side), source.aval.size // _size(side)
    summed = (numbers.COMMON.side_of_a_matrix // 2, numbers.COMMON.side_of_a_matrix // 4)
    columns = -(-others // max(summed))
    sizes = [size for size in summed if policy.keeps_busy(-(-length // size) * columns)]
    size = next(iter(sizes), summed[-1])
    enough = length >= 2 * size and has_blocks_enough(others * -(-length // size), terms, policy)
    return Blocks(dims, size, ()) if enough else None


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def with_sums(cuts: Cuts, jaxpr: Closed, found: Mapping[Var, Blocks]) -> Closed:
    """The same program with these sums in two steps, the first of them where the results are made."""
    inner = jaxpr.jaxpr
    sums = {eqn: source for source, blocks in found.items() for eqn in blocks.sums}
    kept = _read_beside(inner, frozenset(sums))
    makers = {cuts.maker(source): source for source in found}

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(inner.invars, args))
        made: dict[Var, jax.Array] = {}

        def anew(eqn: Eqn, values: Sequence[jax.Array]) -> list[jax.Array] | None:
            if eqn in makers:
                source = makers[eqn]
                (made[source],) = bind_equation(eqn, values)
                return [_written(made[source], found[source]) if source in kept else made[source]]
            if eqn in sums:
                source = sums[eqn]
                (operand,) = variables(eqn.invars)
                here = env | {source: made[source]}
                if operand is not source:
                    run(cuts.below([operand]), here)
                return [_in_two(eqn, here[operand], found[source])]
            return None

        run(inner.eqns, env, anew)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _read_beside(jaxpr: Jaxpr, sums: frozenset[Eqn]) -> set[Var]:
    """What is read for something else than these sums."""
    return needed_for(
        jaxpr.eqns, variables(jaxpr.outvars), lambda eqn, needed: eqn not in sums and (needed or bool(eqn.effects))
    )


def _written(value: jax.Array, blocks: Blocks) -> jax.Array:
    first = blocks.dims[0]
    flat = flattened(value, blocks.dims)
    seen = boundary_p.bind(chunked_p.bind(flat, dim=first, size=blocks.size), dim=first)
    return lax.reshape(seen, value.shape) if len(blocks.dims) > 1 else seen


def _in_two(eqn: Eqn, operand: jax.Array, blocks: Blocks) -> jax.Array:
    first, law = blocks.dims[0], law_of(eqn)
    others = [d - len(blocks.dims) + 1 if d > first else d for d in eqn.params["axes"] if d not in blocks.dims]
    (partial,) = states_of(law, law.lift([operand]), blocks.dims, blocks.size, (first + 1,), first)
    if len(others) + 1 == partial.ndim:  # one row, which may be long in turn
        return law.end(law.fold([lax.reshape(partial, (partial.size,))], (0,)))
    return law.end(law.fold([partial], sorted((first, *others))))
