"""Rewrite: a long row whose sum needs its maximum is read once, in chunks that many programs share.

    m:f32[4] = reduce_max[axes=(1,)] x:f32[4,1000000]
    l:f32[4] = reduce_sum[axes=(1,)] (exp (sub x (broadcast_in_dim m)))
        →
    p:f32[4,123] = boundary (reduce_max[axes=(2,)] (reshape (pad x)))           # of each chunk
    q:f32[4,123] = boundary (reduce_sum[axes=(2,)] (exp (sub x (of its chunk p))))
    m:f32[4] = reduce_max[axes=(1,)] p
    l:f32[4] = reduce_sum[axes=(1,)] (mul q (exp (sub p m)))

It is for rows that are fewer than the processors. What the terms are made of besides is left as it is, and read at the
places of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.graph.nodes import Compute, Reduce
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.graph.streams import Shrinking, Stream, streams_of
from jaxpr2triton.graph.walk import TooManyPlaces
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import needed, read, run, variables
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.once import Without
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import chunk_size
from jaxpr2triton.rules.reductions import TABLE, identity_of

REDUCED = ("reduce_max", "reduce_min", "reduce_sum")


@dataclass(frozen=True)
class Apart:
    """A sum and the extreme that it depends on, in chunks of `size` along one dimension of what both reduce."""

    extreme: Eqn
    total: Eqn
    difference: Eqn
    place: int  # of the value in the difference; the other one is the extreme
    factors: tuple[tuple[Eqn, int], ...]  # what all terms are multiplied or divided by, and the place of the terms
    strict: bool
    size: int

    @property
    def dim(self) -> int:
        (dim,) = self.total.params["axes"]
        return int(dim)

    @property
    def largest(self) -> bool:
        return self.extreme.primitive.name == "reduce_max"


def streams_apart(cuts: Cuts) -> list[Apart]:
    """The sums of long rows that many programs are to share."""
    found = (_apart(cuts, eqn) for eqn in cuts.inside if eqn.primitive.name == "reduce_sum")
    return [each for each in found if each is not None]


def size_of_chunks(cuts: Cuts, eqn: Eqn) -> int | None:
    """How many elements each has, if a sum is one of a few long rows."""
    (out,), shape, axes = eqn.outvars, eqn.invars[0].aval.shape, eqn.params["axes"]
    if len(axes) != 1 or not is_float(out.aval.dtype) or shape[axes[0]] < cuts.policy.splits.streamed:
        return None
    size = chunk_size(eqn, axes[0], axes[0] == len(shape) - 1, cuts.policy.splits)
    return size if size < shape[axes[0]] else None


def _apart(cuts: Cuts, eqn: Eqn) -> Apart | None:
    shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
    size = size_of_chunks(cuts, eqn)
    stream = None if size is None else stream_of(cuts, eqn)
    if size is None or not isinstance(stream, Shrinking) or stream.difference is None:
        return None
    if not (stream.strict or stream.finite):
        return None
    extreme, difference = stream.leader.eqn, stream.difference.eqn
    if {tuple(each.aval.shape) for each in (extreme.invars[0], difference.outvars[0])} != {tuple(shape)}:
        return None
    place = stream.difference.operands.index(stream.value) if stream.value is not None else 0
    if extreme.params["axes"] != axes or difference.invars[place].aval.shape != shape:
        return None
    factors = tuple((product.eqn, _place_of_terms(product, stream)) for product in stream.factors)
    if any(product.invars[at].aval.shape != shape for product, at in factors):
        return None
    return Apart(extreme, eqn, difference, place, factors, stream.strict, size)


def _place_of_terms(product: Compute, stream: Shrinking) -> int:
    """Which operand varies along what is summed."""
    along = frozenset(stream.leader.over)
    return next(place for place, operand in enumerate(product.operands) if along & operand.axes)


def stream_of(cuts: Cuts, eqn: Eqn) -> Stream | None:
    """How a sum goes along with what it depends on, whether that was to be in memory or not."""
    (out,) = eqn.outvars
    inside = [var for var in cuts.loaded if cuts.is_inside(var)]
    reduced = [var for var in inside if cuts.maker(var).primitive.name in REDUCED and _alike(cuts, var, out)]
    try:
        space = space_of(cuts.jaxpr, [out], cuts.classes, Without(cuts.loaded, [out, *reduced]))
    except TooManyPlaces:
        return None
    if space is None:
        return None
    for node in space.graph.of_kind(Reduce):
        if node.eqn is eqn:
            return streams_of(space.graph, frozenset(node.over)).get(node)
    return None


def _alike(cuts: Cuts, one: Var, other: Var) -> bool:
    """Whether two values are reductions of the same dimensions."""
    first, second = cuts.maker(one), cuts.maker(other)
    same = first.invars[0].aval.shape == second.invars[0].aval.shape
    return bool(same and first.params["axes"] == second.params["axes"])


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
                made = of_chunks(eqn, read(env, eqn.invars[0]), extremes[eqn].dim, extremes[eqn].size)
                parts[eqn] = made, boundary_p.bind(made, dim=extremes[eqn].dim)
                env[eqn.outvars[0]] = along(eqn, parts[eqn][1], extremes[eqn].dim)
            elif eqn in totals:
                env[eqn.outvars[0]] = _total(inner.eqns, totals[eqn], env, *parts[totals[eqn].extreme])
            else:
                run([eqn], env)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _total(eqns: Sequence[Eqn], how: Apart, env: dict[Var, jax.Array], made: jax.Array, kept: jax.Array) -> jax.Array:
    """The sum of what chunks have: their terms by their own extremes, and then by that of all."""
    terms = dict(env)
    value = read(env, how.difference.invars[how.place])
    shift = lax.convert_element_type(_safe(how, of_elements(made, how.dim, how.size, value.shape)), value.dtype)
    terms[how.difference.outvars[0]] = lax.sub(shift, value) if how.place else lax.sub(value, shift)
    places = dict(how.factors)
    run(_cone(eqns, how), terms, lambda eqn, values: [values[places[eqn]]] if eqn in places else None)
    chunks = boundary_p.bind(of_chunks(how.total, read(terms, how.total.invars[0]), how.dim, how.size), dim=how.dim)

    dtype = how.total.outvars[0].aval.dtype
    extreme = along(how.extreme, kept, how.dim)  # once more, so that one kernel makes both
    lacking = [d for d in range(kept.ndim) if d != how.dim]
    whole = lax.broadcast_in_dim(extreme, kept.shape, lacking)
    of_all = _without_nothing(how, whole)
    apart = lax.sub(kept, of_all) if how.largest else lax.sub(of_all, kept)
    less = (lax.lt if how.largest else lax.gt)(kept, of_all)
    weights = lax.exp(lax.convert_element_type(apart, dtype))
    weights = lax.select(less, weights, lax.full_like(weights, 1))
    rescaled = lax.mul(chunks, weights)
    if how.strict:  # NaN where the extreme is infinite
        rescaled = lax.add(rescaled, lax.convert_element_type(lax.sub(whole, whole), dtype))
    total = along(how.total, rescaled, how.dim)
    for eqn, place in how.factors:
        factor = read(env, eqn.invars[1 - place])
        each = lax.index_in_dim(factor, 0, how.dim, keepdims=False)
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


def along(eqn: Eqn, operand: jax.Array, dim: int) -> jax.Array:
    (result,) = [eqn.primitive.bind(operand, **{**eqn.params, "axes": (dim,)})]
    return result


def of_chunks(eqn: Eqn, operand: jax.Array, dim: int, size: int) -> jax.Array:
    """What each chunk has."""
    length = operand.shape[dim]
    chunks = -(-length // size)
    if beyond := chunks * size - length:
        neutral = jnp.asarray(identity_of(TABLE[eqn.primitive.name], operand.dtype), operand.dtype)
        operand = lax.pad(operand, neutral, [(0, beyond if d == dim else 0, 0) for d in range(operand.ndim)])
    return along(eqn, lax.reshape(operand, (*operand.shape[:dim], chunks, size, *operand.shape[dim + 1 :])), dim + 1)


def of_elements(made: jax.Array, dim: int, size: int, shape: tuple[int, ...]) -> jax.Array:
    """For each element what its chunk has."""
    both = (*made.shape[: dim + 1], size, *made.shape[dim + 1 :])
    spread = lax.broadcast_in_dim(made, both, [d for d in range(len(both)) if d != dim + 1])
    flat = lax.reshape(spread, (*shape[:dim], made.shape[dim] * size, *shape[dim + 1 :]))
    return lax.slice_in_dim(flat, 0, shape[dim], axis=dim)


def _without_nothing(how: Apart, extreme: jax.Array) -> jax.Array:
    """Zero where there are no elements but infinities that count for nothing."""
    nothing = lax.full_like(extreme, -jnp.inf if how.largest else jnp.inf)
    return lax.select(lax.eq(extreme, nothing), lax.full_like(extreme, 0), extreme)


def _safe(how: Apart, extreme: jax.Array) -> jax.Array:
    """What is subtracted in a chunk."""
    if how.strict:
        return _without_nothing(how, extreme)
    return lax.select(lax.is_finite(extreme), extreme, lax.full_like(extreme, 0))
