"""Rewrite: sums that depend on other reductions of their elements are made along with these, in chunks that many
programs share, so that the elements are read once.

    m:f32[4] = reduce_max[axes=(1,)] x:f32[4,1000000]
    l:f32[4] = reduce_sum[axes=(1,)] (exp (sub x (broadcast_in_dim m)))
        →
    p:f32[4,123] = boundary (reduce_max[axes=(2,)] (reshape (pad x)))           # of each chunk
    q:f32[4,123] = boundary (reduce_sum[axes=(2,)] (exp (sub x (of its chunk p))))
    m:f32[4] = reduce_max[axes=(1,)] p
    l:f32[4] = reduce_sum[axes=(1,)] (mul q (exp (sub p m)))

The terms are made of a difference to what is reduced, and each chunk has its own in the place of that. What the sums of
chunks are with the difference to that of all is the law of the stream: they shrink, as above, or those of squares and
products grow by what the means of the chunks, of n elements, are away from that of all:

    s:f32[4] = reduce_sum[axes=(1,)] x:f32[4,1000000]
    v:f32[4] = reduce_sum[axes=(1,)] (square (sub x (broadcast_in_dim (div s 1e6))))
        →
    v:f32[4] = reduce_sum[axes=(1,)] (add q (mul n (square (sub (div p n) (div s 1e6)))))

It is for long sums with few results, which would be split otherwise (`split.py`), each by itself; and for products of
which they are a factor, where a chain that walks (`graph/chains.py`) would be of few programs, as that of one query and
all keys. What the terms are made of besides is left as it is, and read at the places of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.nodes import Compute, Reduce
from jaxpr2triton.graph.same_places import REDUCED, dims_along, is_at, reduced_of
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.graph.streams import Moments, Shrinking, Stream, streams_along
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import needed, needed_in, read, run, variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Var
from jaxpr2triton.ir.once import Without, maker_of
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
from jaxpr2triton.plan.partition.totals import Total, is_sum, products_in_chunks
from jaxpr2triton.rules.reductions import TABLE

Array = jax.Array
Values = dict[Var, Array]


@dataclass(frozen=True)
class Difference:
    """A value without what it is reduced to, or that without the value."""

    eqn: Eqn
    place: int  # of the value
    leader: Eqn  # reduces the value
    shift: Atom  # what is made of that

    @property
    def value(self) -> Atom:
        return self.eqn.invars[self.place]

    def of(self, value: Array, shift: Array) -> Array:
        return lax.sub(shift, value) if self.place else lax.sub(value, shift)


class StreamLaw(Protocol):
    """How a sum goes along with what its differences are to."""

    def pivot(self, how: Along, state: Array) -> Array:
        """What the values of a chunk are away from; `state` is what their reduction comes to there."""

    def moved(self, how: Along, sums: Array, states: Sequence[Array], wholes: Sequence[Array]) -> Array:
        """The sums of chunks, with the differences to what all elements come to."""


@dataclass(frozen=True)
class Along:
    """A sum in the same chunks as what it depends on."""

    total: Total
    split: Split
    differences: tuple[Difference, ...]
    law: StreamLaw
    factors: tuple[tuple[Eqn, int], ...] = ()  # what all terms are multiplied or divided by, and the place of the terms

    @property
    def place(self) -> int:
        """Of the dimension that says what chunk it is, in what leaders make."""
        return place_of_chunks(self.differences[0].leader, self.split)


@dataclass(frozen=True)
class Shrunk:
    """Sums of multiples of exp(x - m)."""

    largest: bool
    strict: bool  # whether an infinite extreme is subtracted as it is

    def pivot(self, how: Along, state: Array) -> Array:
        if self.strict:
            return self._without_nothing(state)
        return lax.select(lax.is_finite(state), state, lax.full_like(state, 0))

    def moved(self, how: Along, sums: Array, states: Sequence[Array], wholes: Sequence[Array]) -> Array:
        (kept,), (whole,) = states, wholes
        of_all = self._without_nothing(whole)
        apart = lax.sub(kept, of_all) if self.largest else lax.sub(of_all, kept)
        less = (lax.lt if self.largest else lax.gt)(kept, of_all)
        weights = lax.exp(lax.convert_element_type(apart, sums.dtype))
        rescaled = lax.mul(sums, lax.select(less, weights, lax.full_like(weights, 1)))
        if self.strict:  # NaN where the extreme is infinite
            rescaled = lax.add(rescaled, lax.convert_element_type(lax.sub(whole, whole), sums.dtype))
        return rescaled

    def _without_nothing(self, extreme: Array) -> Array:
        """Zero where there are no elements but infinities that count for nothing."""
        nothing = lax.full_like(extreme, -jnp.inf if self.largest else jnp.inf)
        return lax.select(lax.eq(extreme, nothing), lax.full_like(extreme, 0), extreme)


@dataclass(frozen=True)
class Spread:
    """Sums of products of two differences."""

    product: Eqn

    def pivot(self, how: Along, state: Array) -> Array:
        return lax.div(state, _count(how, state))

    def moved(self, how: Along, sums: Array, states: Sequence[Array], wholes: Sequence[Array]) -> Array:
        between = []
        for difference, kept, whole in zip(how.differences, states, wholes, strict=True):
            apart = difference.of(self.pivot(how, kept), whole)
            # the sum of a chunk may be too large for a float: its terms are infinite then, which is enough
            between.append(lax.select(lax.is_finite(kept), apart, lax.full_like(apart, 0)))
        (product,) = [self.product.primitive.bind(*between, **self.product.params)]
        return lax.add(sums, lax.mul(_count(how, sums), product))


def _count(how: Along, made: Array) -> Array:
    """How many elements each chunk has."""
    each, rest = with_each(how.total.eqn, how.split.dims), how.split.length % how.split.size
    whole = lax.full_like(made, how.split.size * each)
    if not rest:
        return whole
    chunk = lax.broadcasted_iota("int32", made.shape, how.place)
    last = lax.eq(chunk, lax.full_like(chunk, how.split.chunks - 1))
    return lax.select(last, lax.full_like(made, rest * each), whole)


# -- which sums these are ---------------------------------------------------------------------------------------------


def streams_apart(cuts: Cuts, splits: Mapping[Eqn, Split]) -> list[Along]:
    """The sums that many programs are to share; `splits` says of which reductions they would, each by itself."""
    alike = {reduced_of(eqn): split for eqn, split in splits.items() if split.chunks > 1}
    products = products_in_chunks(cuts)
    alike |= {total.summed: split for total, split in products.items()}
    sums = [eqn for eqn in cuts.inside if eqn.primitive.name == "reduce_sum" and reduced_of(eqn) in alike]
    floats = [Total(eqn) for eqn in sums if is_float(eqn.outvars[0].aval.dtype)]
    leaders: dict[Atom, Eqn] = {total.terms: total.eqn for total in floats if isinstance(total.terms, Var)}
    made = (_along(cuts, total, alike[total.summed], leaders) for total in (*floats, *products))
    return [each for each in made if each is not None]


def _along(cuts: Cuts, total: Total, split: Split, sums: Mapping[Atom, Eqn]) -> Along | None:
    match _stream_of(cuts, total):
        case Shrinking() as stream:
            return _shrunk(cuts, total, split, stream)
        case Moments() if (held := held_chunks(total.eqn, split, cuts.policy)) is not None:
            return _spread(cuts, total, held, sums)
    return None


def _stream_of(cuts: Cuts, total: Total) -> Stream | None:
    """How a sum goes along with what it depends on, whether that was to be in memory or not."""
    (out,) = total.eqn.outvars
    inside = [var for var in cuts.loaded if cuts.is_inside(var)]
    sums = [var for var in inside if cuts.maker(var).primitive.name in REDUCED]
    reduced = [var for var in sums if reduced_of(cuts.maker(var)) == total.summed]
    try:
        space = space_of(cuts.jaxpr, [out], cuts.classes, Without(cuts.loaded, [out, *reduced]))
    except TooManyPlaces:
        return None
    if space is None:
        return None
    here = [node for node in space.graph.of_kind(Reduce) if node.eqn is total.eqn]
    return streams_along(space.graph, frozenset(here[0].over)).get(here[0]) if here else None


def _is_of_the_same_rows(cuts: Cuts, total: Total, stream: Shrinking) -> bool:
    """Whether each term is a multiple of the exponential at its own place, and that of the extreme of its own row."""
    assert stream.difference is not None  # that is how it was found
    extreme, difference = stream.leader.eqn, stream.difference.eqn
    eqns = [eqn for eqn in cuts.jaxpr.eqns if not is_sum(eqn)]  # what is made of all terms comes later
    place = stream.difference.operands.index(stream.value) if stream.value is not None else 0
    value, shift = difference.invars[place], difference.invars[1 - place]
    after = dims_along(eqns, difference.outvars[0])
    ends = [var for var in variables(total.eqn.invars) if var in after]
    if len(ends) != 1 or ends[0] is not total.terms:
        return False
    is_here = is_at(after[ends[0]], ends[0], range(len(ends[0].aval.shape)))
    return is_here and _is_reduced(cuts, extreme, value) and _is_of_rows(eqns, extreme, shift)


def _is_reduced(cuts: Cuts, leader: Eqn, value: Atom) -> bool:
    """Whether these are the elements that were reduced, before some of them were hidden."""
    one, other = (_uncast(cuts, atom) for atom in (leader.invars[0], value))
    if one is other:
        return True
    for source, target in ((one, other), (other, one)):
        if isinstance(source, Var) and isinstance(target, Var):
            dims = dims_along(cuts.jaxpr.eqns, source).get(target)
            if is_at(dims, target, range(len(target.aval.shape))):
                return True
    return False


def _uncast(cuts: Cuts, atom: Atom) -> Atom:
    while (eqn := maker_of(cuts.jaxpr, atom)) is not None and eqn.primitive.name == "convert_element_type":
        (atom,) = eqn.invars
    return atom


def _is_of_rows(eqns: Sequence[Eqn], leader: Eqn, shift: Atom) -> bool:
    """Whether each element is what its own row was reduced to, or made of that."""
    (result,), axes = leader.outvars, leader.params["axes"]
    rows = iter(range(len(result.aval.shape)))
    wanted = [None if d in axes else next(rows) for d in range(len(leader.invars[0].aval.shape))]
    made = dims_along(eqns, result).get(shift) if isinstance(shift, Var) else None
    return made is not None and len(made) == len(wanted) and is_at(made, shift, wanted)


def _shrunk(cuts: Cuts, total: Total, split: Split, stream: Shrinking) -> Along | None:
    if stream.difference is None or not (stream.strict or stream.finite):
        return None
    extreme, difference = stream.leader.eqn, stream.difference.eqn
    place = stream.difference.operands.index(stream.value) if stream.value is not None else 0
    factors = tuple((product.eqn, _place_of_terms(product, stream)) for product in stream.factors)
    whole = [extreme.invars[0], difference.outvars[0], difference.invars[place]]
    whole += [product.invars[at] for product, at in factors]
    if reduced_of(extreme) != total.summed or any(atom.aval.shape != total.terms.aval.shape for atom in whole):
        return None
    if not _is_of_the_same_rows(cuts, total, stream):
        return None
    law = Shrunk(extreme.primitive.name == "reduce_max", stream.strict)
    return Along(total, split, (Difference(difference, place, extreme, extreme.outvars[0]),), law, factors)


def _place_of_terms(product: Compute, stream: Shrinking) -> int:
    """Which operand varies along what is summed."""
    along = frozenset(stream.leader.over)
    return next(place for place, operand in enumerate(product.operands) if along & operand.axes)


def _spread(cuts: Cuts, total: Total, split: Split, sums: Mapping[Atom, Eqn]) -> Along | None:
    product = maker_of(cuts.jaxpr, total.terms)
    factors = [next(_differences(cuts, atom, total, sums), None) for atom in product.invars] if product else []
    found = tuple(each for each in factors if each is not None)
    return Along(total, split, found, Spread(product)) if product and len(found) == len(factors) else None


def _differences(cuts: Cuts, atom: Atom, total: Total, sums: Mapping[Atom, Eqn]) -> Iterator[Difference]:
    """The value that a factor is made of is the one whose sum leads to what it is away from."""
    eqn = maker_of(cuts.jaxpr, atom)
    if eqn is not None and eqn.primitive.name == "sub":
        for place, shift in ((0, eqn.invars[1]), (1, eqn.invars[0])):
            leader = sums.get(eqn.invars[place]) if isinstance(eqn.invars[place], Var) else None
            if leader is None or reduced_of(leader) != total.summed:
                continue
            if leader in needed_in(cuts.jaxpr, [shift], ()) and _is_of_rows(cuts.jaxpr.eqns, leader, shift):
                yield Difference(eqn, place, leader, shift)


# -- the program in chunks --------------------------------------------------------------------------------------------


def in_chunks(cuts: Cuts, jaxpr: Closed, found: Sequence[Along]) -> Closed:
    """The same program with these sums, and what they depend on, in chunks."""
    inner = jaxpr.jaxpr
    totals = {each.total.eqn: each for each in found}
    leaders = {difference.leader: each for each in found for difference in each.differences}

    def rewritten(*args: Array) -> list[Array]:
        env = dict(zip(inner.invars, args))
        parts: dict[Eqn, tuple[Array, Array]] = {}  # what chunks come to, as it is made and in memory

        def anew(eqn: Eqn, values: list[Array]) -> list[Array] | None:
            if eqn in leaders:
                made, place = of_chunks(eqn, leaders[eqn].split, *values), leaders[eqn].place
                parts[eqn] = made, boundary_p.bind(made, dim=place)
                return [along(eqn, parts[eqn][1], place)]
            return [_total(cuts, totals[eqn], env, parts)] if eqn in totals else None

        run(inner.eqns, env, anew)
        return [read(env, atom) for atom in inner.outvars]

    return again(jaxpr, rewritten)


def _total(cuts: Cuts, how: Along, env: Values, parts: Mapping[Eqn, tuple[Array, Array]]) -> Array:
    """The sum of what chunks have: their terms by what they come to themselves, and then by what all do."""
    terms = dict(env)
    for each in how.differences:
        value, pivot = read(env, each.value), how.law.pivot(how, parts[each.leader][0])
        shift = lax.convert_element_type(of_elements(each.leader, how.split, pivot), value.dtype)
        terms[each.eqn.outvars[0]] = each.of(value, shift)
    places = dict(how.factors)
    run(_cone(cuts, how), terms, lambda eqn, values: [values[places[eqn]]] if eqn in places else None)
    sums = how.total.in_chunks(how.split, [read(terms, atom) for atom in how.total.eqn.invars])
    states = [parts[each.leader][1] for each in how.differences]
    wholes = [_of_all(cuts.jaxpr.eqns, how, each, env, kept) for each, kept in zip(how.differences, states)]
    there = [[how.total.spread(each, how.split) for each in of] for of in (states, wholes)]
    total = how.total.of_all(how.split, how.law.moved(how, sums, *there))
    dtype = how.total.eqn.outvars[0].aval.dtype
    for eqn, place in how.factors:
        each_result = how.total.spread(_of_rows(how, read(env, eqn.invars[1 - place])))
        each_result = lax.convert_element_type(each_result, total.dtype)
        total = lax.mul(total, each_result) if eqn.primitive.name == "mul" else lax.div(total, each_result)
    return lax.convert_element_type(total, dtype)


def _cone(cuts: Cuts, how: Along) -> list[Eqn]:
    """What makes terms of the differences; of all elements are other sums, what is in memory and late factors."""
    factors = [eqn.invars[1 - place] for eqn, place in how.factors]
    depends = {each.eqn.outvars[0] for each in how.differences}
    found = []
    for eqn in cuts.jaxpr.eqns:
        is_made = eqn.primitive.name in TABLE or not cuts.loaded.keys().isdisjoint(eqn.outvars)
        if not is_made and not depends.isdisjoint(variables(eqn.invars)):
            found.append(eqn)
            depends.update(eqn.outvars)
    return needed(found, how.total.eqn.invars, variables(factors))


def _of_all(eqns: Sequence[Eqn], how: Along, difference: Difference, env: Values, kept: Array) -> Array:
    """What the values are away from, for each chunk: made once more, so that one kernel makes all of it."""
    (result,) = difference.leader.outvars
    made = {**env, result: along(difference.leader, kept, how.place)}
    run(needed(eqns, [difference.shift], [result]), made)
    one = read(made, difference.shift)
    one = one if one.ndim < kept.ndim else _of_rows(how, one)
    return lax.broadcast_in_dim(one, kept.shape, [d for d in range(kept.ndim) if d != how.place])


def _of_rows(how: Along, value: Array) -> Array:
    """What does not vary along what is reduced."""
    _, axes = how.total.summed
    first = [slice(0, 1) if d in axes else slice(None) for d in range(value.ndim)]
    return lax.squeeze(value[tuple(first)], axes)
