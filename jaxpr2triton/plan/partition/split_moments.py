"""Rewrite: what is summed up, and then squared without its mean, is read once, in chunks that many programs share.

    s:f32[4] = reduce_sum[axes=(1,)] x:f32[4,1000000]
    v:f32[4] = reduce_sum[axes=(1,)] (square (sub x (broadcast_in_dim (div s 1e6))))
        →
    p:f32[4,123] = boundary (reduce_sum[axes=(2,)] (reshape (pad x)))           # of each chunk, of n elements
    q:f32[4,123] = boundary (reduce_sum[axes=(2,)] (square (sub x (of its chunk (div p n)))))
    s:f32[4] = reduce_sum[axes=(1,)] p
    v:f32[4] = reduce_sum[axes=(1,)] (add q (mul n (square (sub (div p n) (div s 1e6)))))

It is for long sums with few results, of rows or of columns, and for products of two such differences as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax
from jax import lax

from jaxpr2triton.graph.streams import Moments
from jaxpr2triton.ir.evaluate import needed, needed_in, read, run
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import (
    Split,
    along,
    held_chunks,
    of_chunks,
    of_elements,
    place_of_chunks,
    with_each,
)
from jaxpr2triton.plan.partition.split_streams import of_results, stream_of, sums_in_chunks

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
    """A sum of products of such differences, in chunks."""

    total: Eqn
    product: Eqn
    factors: tuple[Difference, ...]
    split: Split

    @property
    def place(self) -> int:
        """Of the dimension that says what chunk it is."""
        return place_of_chunks(self.total, self.split)


def moments_apart(cuts: Cuts, splits: Mapping[Eqn, Split]) -> list[Spread]:
    """The sums that many programs are to share; `splits` says of which reductions they would, each by itself."""
    found = sums_in_chunks(cuts, splits)
    sums: dict[Atom, Eqn] = {eqn.invars[0]: eqn for eqn in found if isinstance(eqn.invars[0], Var)}
    spreads = (_spread(cuts, eqn, split, sums) for eqn, split in found.items())
    return [each for each in spreads if each is not None]


def _spread(cuts: Cuts, eqn: Eqn, split: Split, sums: Mapping[Atom, Eqn]) -> Spread | None:
    held = held_chunks(eqn, split, cuts.policy)
    if held is None or not isinstance(stream_of(cuts, eqn), Moments):
        return None
    made = (cuts.makers.get(atom) for atom in eqn.invars if isinstance(atom, Var))
    product = next((cuts.jaxpr.eqns[place] for place in made if place is not None), None)
    if product is None:
        return None
    factors = tuple(_difference(cuts, atom, eqn, sums) for atom in product.invars)
    if not all(isinstance(each, Difference) for each in factors):
        return None
    return Spread(eqn, product, tuple(each for each in factors if each is not None), held)


def _difference(cuts: Cuts, atom: Atom, total: Eqn, sums: Mapping[Atom, Eqn]) -> Difference | None:
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
                how = means[eqn]
                made = of_chunks(eqn, how.split, read(env, eqn.invars[0]))
                parts[eqn.invars[0]] = made, boundary_p.bind(made, dim=how.place)
                env[eqn.outvars[0]] = along(eqn, parts[eqn.invars[0]][1], how.place)
            elif eqn in totals:
                env[eqn.outvars[0]] = _total(inner.eqns, totals[eqn], env, parts)
            else:
                run([eqn], env)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _total(eqns: Sequence[Eqn], how: Spread, env: dict[Var, jax.Array], parts: Parts) -> jax.Array:
    """The products of what is away from the means of chunks, and those of the means, as often as there are elements."""
    within, between = [], []
    for factor in how.factors:
        made, kept = parts[factor.value]
        count = _count(how, made)
        mean = of_elements(how.total, how.split, lax.div(made, count))
        within.append(factor.of(read(env, factor.value), mean))
        apart = factor.of(lax.div(kept, count), _of_all(eqns, how, factor, env, kept))
        # the sum of a chunk may be too large for a float: its terms are infinite then, which is enough
        between.append(lax.select(lax.is_finite(kept), apart, lax.full_like(apart, 0)))
    spread = boundary_p.bind(of_chunks(how.total, how.split, _product(how, within)), dim=how.place)
    return along(how.total, lax.add(spread, lax.mul(count, _product(how, between))), how.place)


def _of_all(
    eqns: Sequence[Eqn], how: Spread, factor: Difference, env: Mapping[Var, jax.Array], kept: jax.Array
) -> jax.Array:
    """What a factor is away from, for each chunk: made of the sum once more, so that one kernel makes both."""
    (total,), shift = factor.total.outvars, factor.eqn.invars[1 - factor.place]
    made = {**env, total: along(factor.total, kept, how.place)}
    run(needed(eqns, [shift], [total]), made)
    one = of_results(how.total, read(made, shift))
    return lax.broadcast_in_dim(one, kept.shape, [d for d in range(kept.ndim) if d != how.place])


def _product(how: Spread, factors: Iterable[jax.Array]) -> jax.Array:
    (result,) = [how.product.primitive.bind(*factors, **how.product.params)]
    return result


def _count(how: Spread, made: jax.Array) -> jax.Array:
    """How many elements each chunk has."""
    each, rest = with_each(how.total, how.split.dims), how.split.length % how.split.size
    whole = lax.full_like(made, how.split.size * each)
    if not rest:
        return whole
    chunk = lax.broadcasted_iota("int32", made.shape, how.place)
    last = lax.eq(chunk, lax.full_like(chunk, how.split.chunks - 1))
    return lax.select(last, lax.full_like(made, rest * each), whole)
