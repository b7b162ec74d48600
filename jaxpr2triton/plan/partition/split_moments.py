"""Rewrite: a long row whose sum of squares needs its mean is read once, in chunks that many programs share.

    s:f32[4] = reduce_sum[axes=(1,)] x:f32[4,1000000]
    v:f32[4] = reduce_sum[axes=(1,)] (square (sub x (broadcast_in_dim (div s 1e6))))
        →
    p:f32[4,123] = boundary (reduce_sum[axes=(2,)] (reshape (pad x)))           # of each chunk, of n elements
    q:f32[4,123] = boundary (reduce_sum[axes=(2,)] (square (sub x (of its chunk (div p n)))))
    s:f32[4] = reduce_sum[axes=(1,)] p
    v:f32[4] = reduce_sum[axes=(1,)] (add q (mul n (square (sub (div p n) (div s 1e6)))))

It is for rows that are fewer than the processors, and for products of two such differences as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax
from jax import lax

from jaxpr2triton.graph.streams import Moments
from jaxpr2triton.ir.evaluate import needed, needed_in, read, run
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split_streams import along, of_chunks, of_elements, size_of_chunks, stream_of

Parts = dict[Atom, tuple[jax.Array, jax.Array]]  # the sums of chunks of a value, as they are made and in memory


@dataclass(frozen=True)
class Difference:
    """A value without its mean, or the mean without it."""

    eqn: Eqn
    place: int  # of the value
    total: Eqn  # of the value

    @property
    def value(self) -> Atom:
        return self.eqn.invars[self.place]

    def of(self, value: jax.Array, shift: jax.Array) -> jax.Array:
        return lax.sub(shift, value) if self.place else lax.sub(value, shift)


@dataclass(frozen=True)
class Spread:
    """A sum of products of such differences, in chunks of `size` along one dimension."""

    total: Eqn
    product: Eqn
    factors: tuple[Difference, ...]
    size: int

    @property
    def dim(self) -> int:
        (dim,) = self.total.params["axes"]
        return int(dim)


def moments_apart(cuts: Cuts) -> list[Spread]:
    """The sums of long rows that many programs are to share."""
    added = (eqn for eqn in cuts.inside if eqn.primitive.name == "reduce_sum")
    sums: dict[Atom, Eqn] = {eqn.invars[0]: eqn for eqn in added if isinstance(eqn.invars[0], Var)}
    found = (_spread(cuts, eqn, sums) for eqn in sums.values())
    return [each for each in found if each is not None]


def _spread(cuts: Cuts, eqn: Eqn, sums: dict[Atom, Eqn]) -> Spread | None:
    size = size_of_chunks(cuts, eqn)
    if size is None or not isinstance(stream_of(cuts, eqn), Moments):
        return None
    made = (cuts.makers.get(atom) for atom in eqn.invars if isinstance(atom, Var))
    product = next((cuts.jaxpr.eqns[place] for place in made if place is not None), None)
    if product is None:
        return None
    factors = tuple(_difference(cuts, atom, eqn, sums) for atom in product.invars)
    if not all(isinstance(each, Difference) for each in factors):
        return None
    held = min(size, cuts.policy.blocks.resident)  # else a chunk would be read for its mean, and once more
    return Spread(eqn, product, tuple(each for each in factors if each is not None), held)


def _difference(cuts: Cuts, atom: Atom, total: Eqn, sums: dict[Atom, Eqn]) -> Difference | None:
    """The value that a factor is made of is the one whose sum leads to what it is away from."""
    place = cuts.makers.get(atom) if isinstance(atom, Var) else None
    eqn = None if place is None else cuts.jaxpr.eqns[place]
    if eqn is None or eqn.primitive.name != "sub":
        return None
    for place, value in enumerate(eqn.invars):
        other = sums.get(value) if isinstance(value, Var) else None
        alike = other is not None and other.params["axes"] == total.params["axes"]
        if other is None or not alike or value.aval.shape != total.invars[0].aval.shape:
            continue
        if other in needed_in(cuts.jaxpr, [eqn.invars[1 - place]], ()):
            return Difference(eqn, place, other)
    return None


def with_moments(jaxpr: Closed, found: Sequence[Spread]) -> Closed:
    """The same program with these sums, and those of the values themselves, in chunks."""
    inner = jaxpr.jaxpr
    totals = {each.total: each for each in found}
    means = {factor.total: each for each in found for factor in each.factors}

    def rewritten(*args: jax.Array) -> list[jax.Array]:
        env = dict(zip(inner.invars, args))
        parts: Parts = {}
        for eqn in inner.eqns:
            if eqn in means:
                made = of_chunks(eqn, read(env, eqn.invars[0]), means[eqn].dim, means[eqn].size)
                kept = boundary_p.bind(made, dim=means[eqn].dim)
                parts[eqn.invars[0]] = made, kept
                env[eqn.outvars[0]] = along(eqn, kept, means[eqn].dim)
            elif eqn in totals:
                env[eqn.outvars[0]] = _total(inner.eqns, totals[eqn], env, parts)
            else:
                run([eqn], env)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _total(eqns: Sequence[Eqn], how: Spread, env: dict[Var, jax.Array], parts: Parts) -> jax.Array:
    """The products of what is away from the means of chunks, and those of the means, as often as there are elements."""
    dim, size = how.dim, how.size
    shape = how.total.invars[0].aval.shape
    within, between = [], []
    for factor in how.factors:
        made, kept = parts[factor.value]
        count = _count(made, dim, size, shape[dim])
        within.append(factor.of(read(env, factor.value), of_elements(lax.div(made, count), dim, size, shape)))
        apart = factor.of(lax.div(kept, count), _of_all(eqns, factor, env, kept, dim))
        # the sum of a chunk may be too large for a float: its terms are infinite then, which is enough
        between.append(lax.select(lax.is_finite(kept), apart, lax.full_like(apart, 0)))
    spread = boundary_p.bind(of_chunks(how.total, _product(how, within), dim, size), dim=dim)
    return along(how.total, lax.add(spread, lax.mul(count, _product(how, between))), dim)


def _of_all(eqns: Sequence[Eqn], factor: Difference, env: dict[Var, jax.Array], kept: jax.Array, dim: int) -> jax.Array:
    """What a factor is away from, for each chunk: made of the sum once more, so that one kernel makes both."""
    (total,), shift = factor.total.outvars, factor.eqn.invars[1 - factor.place]
    made = {**env, total: along(factor.total, kept, dim)}
    run(needed(eqns, [shift], [total]), made)
    one = lax.index_in_dim(read(made, shift), 0, dim, keepdims=False)
    return lax.broadcast_in_dim(one, kept.shape, [d for d in range(kept.ndim) if d != dim])


def _product(how: Spread, factors: Iterable[jax.Array]) -> jax.Array:
    (result,) = [how.product.primitive.bind(*factors, **how.product.params)]
    return result


def _count(made: jax.Array, dim: int, size: int, length: int) -> jax.Array:
    """How many elements each chunk has."""
    whole = lax.full_like(made, size)
    if length % size == 0:
        return whole
    last = lax.eq(lax.broadcasted_iota("int32", made.shape, dim), lax.full_like(made, made.shape[dim] - 1, "int32"))
    return lax.select(last, lax.full_like(made, length % size), whole)
