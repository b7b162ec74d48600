"""Rewrite: what is summed with its own maximum is read once, in chunks that many programs share.

    m:f32[4] = reduce_max[axes=(1,)] x:f32[4,1000000]
    l:f32[4] = reduce_sum[axes=(1,)] (exp (sub x (broadcast_in_dim m)))
        →
    p:f32[4,123] = boundary (reduce_max[axes=(2,)] (reshape (pad x)))           # of each chunk
    q:f32[4,123] = boundary (reduce_sum[axes=(2,)] (exp (sub x (of its chunk p))))
    m:f32[4] = reduce_max[axes=(1,)] p
    l:f32[4] = reduce_sum[axes=(1,)] (mul q (exp (sub p m)))

It is for long sums with few results, which would be split otherwise (`split.py`), each by itself. What the terms are
made of besides is left as it is, and read at the places of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.nodes import Compute, Reduce
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.graph.streams import Shrinking, Stream, streams_along
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import needed, read, run, variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.once import Without
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import Split, along, of_chunks, of_elements, place_of_chunks
from jaxpr2triton.rules.reductions import TABLE

REDUCED = ("reduce_max", "reduce_min", "reduce_sum")


@dataclass(frozen=True)
class Apart:
    """A sum and the extreme that it depends on, in the same chunks."""

    extreme: Eqn
    total: Eqn
    difference: Eqn
    side: int  # of the difference, where the value is; on the other one is the extreme
    factors: tuple[tuple[Eqn, int], ...]  # what all terms are multiplied or divided by, and the place of the terms
    strict: bool
    split: Split

    @property
    def place(self) -> int:
        """Of the dimension that says what chunk it is."""
        return place_of_chunks(self.total, self.split)

    @property
    def largest(self) -> bool:
        return self.extreme.primitive.name == "reduce_max"


def streams_apart(cuts: Cuts, splits: Mapping[Eqn, Split]) -> list[Apart]:
    """The sums that many programs are to share; `splits` says of which reductions they would, each by itself."""
    found = (_apart(cuts, eqn, split) for eqn, split in sums_in_chunks(cuts, splits).items())
    return [each for each in found if each is not None]


def sums_in_chunks(cuts: Cuts, splits: Mapping[Eqn, Split]) -> dict[Eqn, Split]:
    """The sums along with which something is reduced that is to be split, and how."""
    alike = {_reduced(eqn): split for eqn, split in splits.items() if split.chunks > 1}
    sums = [eqn for eqn in cuts.inside if alike and eqn.primitive.name == "reduce_sum"]
    floats = [eqn for eqn in sums if is_float(eqn.outvars[0].aval.dtype)]
    return {eqn: alike[_reduced(eqn)] for eqn in floats if _reduced(eqn) in alike}


def _reduced(eqn: Eqn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(eqn.invars[0].aval.shape), tuple(eqn.params["axes"])


def _apart(cuts: Cuts, eqn: Eqn, split: Split) -> Apart | None:
    shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
    stream = stream_of(cuts, eqn)
    if not isinstance(stream, Shrinking) or stream.difference is None or not (stream.strict or stream.finite):
        return None
    extreme, difference = stream.leader.eqn, stream.difference.eqn
    if {tuple(each.aval.shape) for each in (extreme.invars[0], difference.outvars[0])} != {tuple(shape)}:
        return None
    side = stream.difference.operands.index(stream.value) if stream.value is not None else 0
    if extreme.params["axes"] != axes or difference.invars[side].aval.shape != shape:
        return None
    factors = tuple((product.eqn, _place_of_terms(product, stream)) for product in stream.factors)
    if any(product.invars[at].aval.shape != shape for product, at in factors):
        return None
    return Apart(extreme, eqn, difference, side, factors, stream.strict, split)


def _place_of_terms(product: Compute, stream: Shrinking) -> int:
    """Which operand varies along what is summed."""
    along = frozenset(stream.leader.over)
    return next(place for place, operand in enumerate(product.operands) if along & operand.axes)


def stream_of(cuts: Cuts, eqn: Eqn) -> Stream | None:
    """How a sum goes along with what it depends on, whether that was to be in memory or not."""
    (out,) = eqn.outvars
    inside = [var for var in cuts.loaded if cuts.is_inside(var)]
    sums = [var for var in inside if cuts.maker(var).primitive.name in REDUCED]
    reduced = [var for var in sums if _reduced(cuts.maker(var)) == _reduced(eqn)]
    try:
        space = space_of(cuts.jaxpr, [out], cuts.classes, Without(cuts.loaded, [out, *reduced]))
    except TooManyPlaces:
        return None
    if space is None:
        return None
    for node in space.graph.of_kind(Reduce):
        if node.eqn is eqn:
            return streams_along(space.graph, frozenset(node.over)).get(node)
    return None


def in_chunks(jaxpr: Closed, found: Sequence[Apart]) -> Closed:
    """The same program with these sums, and what they depend on, in chunks."""
    inner = jaxpr.jaxpr
    totals = {each.total: each for each in found}
    extremes = {each.extreme: each for each in found}

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(inner.invars, args))
        parts: dict[Eqn, tuple[jax.Array, jax.Array]] = {}  # the extremes of chunks, as they are made and in memory
        for eqn in inner.eqns:
            if eqn in extremes:
                how = extremes[eqn]
                made = of_chunks(eqn, how.split, read(env, eqn.invars[0]))
                parts[eqn] = made, boundary_p.bind(made, dim=how.place)
                env[eqn.outvars[0]] = along(eqn, parts[eqn][1], how.place)
            elif eqn in totals:
                env[eqn.outvars[0]] = _total(inner.eqns, totals[eqn], env, *parts[totals[eqn].extreme])
            else:
                run([eqn], env)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _total(eqns: Sequence[Eqn], how: Apart, env: dict[Var, jax.Array], made: jax.Array, kept: jax.Array) -> jax.Array:
    """The sum of what chunks have: their terms by their own extremes, and then by that of all."""
    terms = dict(env)
    value = read(env, how.difference.invars[how.side])
    shift = lax.convert_element_type(_safe(how, of_elements(how.extreme, how.split, made)), value.dtype)
    terms[how.difference.outvars[0]] = lax.sub(shift, value) if how.side else lax.sub(value, shift)
    places = dict(how.factors)
    run(_cone(eqns, how), terms, lambda eqn, values: [values[places[eqn]]] if eqn in places else None)
    chunks = boundary_p.bind(of_chunks(how.total, how.split, read(terms, how.total.invars[0])), dim=how.place)

    dtype = how.total.outvars[0].aval.dtype
    extreme = along(how.extreme, kept, how.place)  # once more, so that one kernel makes both
    whole = lax.broadcast_in_dim(extreme, kept.shape, [d for d in range(kept.ndim) if d != how.place])
    of_all = _without_nothing(how, whole)
    apart = lax.sub(kept, of_all) if how.largest else lax.sub(of_all, kept)
    less = (lax.lt if how.largest else lax.gt)(kept, of_all)
    weights = lax.exp(lax.convert_element_type(apart, dtype))
    weights = lax.select(less, weights, lax.full_like(weights, 1))
    rescaled = lax.mul(chunks, weights)
    if how.strict:  # NaN where the extreme is infinite
        rescaled = lax.add(rescaled, lax.convert_element_type(lax.sub(whole, whole), dtype))
    total = along(how.total, rescaled, how.place)
    for eqn, place in how.factors:
        each = of_results(how.total, read(env, eqn.invars[1 - place]))
        total = lax.mul(total, each) if eqn.primitive.name == "mul" else lax.div(total, each)
    return total


def _cone(eqns: Sequence[Eqn], how: Apart) -> list[Eqn]:
    """What makes terms of the difference; other sums, and what multiplies the terms at the end, are made already."""
    factors = [eqn.invars[1 - place] for eqn, place in how.factors]
    depends = {how.difference.outvars[0]}
    found = []
    for eqn in eqns:
        if eqn.primitive.name not in TABLE and not depends.isdisjoint(variables(eqn.invars)):
            found.append(eqn)
            depends.update(eqn.outvars)
    return needed(found, how.total.invars, variables(factors))


def of_results(eqn: Eqn, value: jax.Array) -> jax.Array:
    """What does not vary along what is reduced."""
    axes = eqn.params["axes"]
    first = [slice(0, 1) if d in axes else slice(None) for d in range(value.ndim)]
    return lax.squeeze(value[tuple(first)], axes)


def _without_nothing(how: Apart, extreme: jax.Array) -> jax.Array:
    """Zero where there are no elements but infinities that count for nothing."""
    nothing = lax.full_like(extreme, -jnp.inf if how.largest else jnp.inf)
    return lax.select(lax.eq(extreme, nothing), lax.full_like(extreme, 0), extreme)


def _safe(how: Apart, extreme: jax.Array) -> jax.Array:
    """What is subtracted in a chunk."""
    if how.strict:
        return _without_nothing(how, extreme)
    return lax.select(lax.is_finite(extreme), extreme, lax.full_like(extreme, 0))
