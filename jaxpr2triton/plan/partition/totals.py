"""What is summed up in chunks: the elements of an operand, or their products with those of another one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import jax
from jax import lax

from jaxpr2triton.graph.chains import are_enough
from jaxpr2triton.graph.same_places import EXTREMES, Summed, reduced_of, reduces_alike
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn
from jaxpr2triton.ir.once import readers_of
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.in_two import in_memory, parts_of
from jaxpr2triton.plan.partition.split import Split, along, of_chunks, place_of_chunks
from jaxpr2triton.plan.partition.split_products import law_of_products
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.products import LEAST
from jaxpr2triton.rules.reductions import TABLE

Array = jax.Array


@dataclass(frozen=True)
class Total:
    """A sum of an operand's elements, or of their products with those of another one."""

    eqn: Eqn
    place: int = 0  # of the operand

    @property
    def terms(self) -> Atom:
        return self.eqn.invars[self.place]

    @property
    def summed(self) -> Summed:
        if self.eqn.primitive is not lax.dot_general_p:
            return reduced_of(self.eqn)
        sums, _ = self.eqn.params["dimension_numbers"]
        return tuple(self.terms.aval.shape), tuple(sums[self.place])

    def in_chunks(self, split: Split, operands: Sequence[Array]) -> Array:
        """What each chunk has, in memory."""
        if self.eqn.primitive is not lax.dot_general_p:
            return boundary_p.bind(of_chunks(self.eqn, split, *operands), dim=place_of_chunks(self.eqn, split))
        sums, _ = self.eqn.params["dimension_numbers"]
        parts = [parts_of(each, dims, split.size, 0) for each, dims in zip(operands, sums)]
        law = law_of_products(self.eqn, *(dim for (dim,) in sums))
        return in_memory(law.fold(parts, ()), 0)[0]

    def of_all(self, split: Split, sums: Array) -> Array:
        if self.eqn.primitive is not lax.dot_general_p:
            return along(self.eqn, sums, place_of_chunks(self.eqn, split))
        return lax.reduce_sum(sums, (0,))

    def spread(self, value: Array, split: Split | None = None) -> Array:
        """What each row of the operand has, or each chunk of it, for all that is made of it."""
        if self.eqn.primitive is not lax.dot_general_p:
            return value
        shape = self.eqn.outvars[0].aval.shape
        dims = self._dims
        if split is not None:
            (place,), shape = split.dims, (split.chunks, *shape)
            dims = [d + 1 for d in dims]
            dims.insert(place, 0)
        order = sorted(range(len(dims)), key=dims.__getitem__)
        return lax.broadcast_in_dim(lax.transpose(value, order), shape, sorted(dims))

    @property
    def _dims(self) -> list[int]:
        """Where the results have what is left of the operand's dimensions."""
        sums, batch = self.eqn.params["dimension_numbers"]
        own = [
            [d for d in range(len(each.aval.shape)) if d not in (*summed, *shared)]
            for each, summed, shared in zip(self.eqn.invars, sums, batch)
        ]
        order = [*batch[self.place], *[-1] * len(own[0]) * self.place, *own[self.place]]
        return [order.index(d) for d in sorted({*batch[self.place], *own[self.place]})]


def products_in_chunks(cuts: Cuts) -> dict[Total, Split]:
    """The products of few rows that may go along with what is reduced of a long factor, and so may what makes that."""
    leaders: dict[Summed, list[Eqn]] = {}
    for eqn in (eqn for eqn in cuts.inside if eqn.primitive.name in EXTREMES):
        leaders.setdefault(reduced_of(eqn), []).append(eqn)
    totals = (Total(eqn, place) for eqn in cuts.inside if leaders and _has_one_sum(eqn) for place in (0, 1))
    splits = {total: _chunks_of(total, cuts.policy) for total in totals if total.summed in leaders}
    found = {total: split for total, split in splits.items() if split.chunks > 1}
    ends = {total.eqn for total in found}
    alone = {summed for summed, each in leaders.items() if all(_is_made_for(cuts, eqn, ends) for eqn in each)}
    return {total: split for total, split in found.items() if total.summed in alone}


def _has_one_sum(eqn: Eqn) -> bool:
    """Whether it multiplies floats, and adds up along one dimension."""
    if eqn.primitive is not lax.dot_general_p or eqn.invars[0] is eqn.invars[1]:
        return False
    return is_float(eqn.outvars[0].aval.dtype) and len(eqn.params["dimension_numbers"][0][0]) == 1


def _is_made_for(cuts: Cuts, leader: Eqn, ends: Collection[Eqn]) -> bool:
    """Whether what is reduced is made of products, of which nobody reads more than sums along the same dimensions."""
    readers = readers_of(cuts.jaxpr)

    def reads(eqn: Eqn) -> list[Eqn]:
        found = [each for var in eqn.outvars for each in readers.get(var, ()) if each is not None]
        return [each for each in found if each not in ends and not reduces_alike(each, leader)]

    products = _products_before(cuts, leader)
    within = [*reachable(products, reads)]
    made = [var for eqn in within for var in eqn.outvars]
    others = [eqn for eqn in within if is_sum(eqn) and eqn not in products]
    written = any(not cuts.is_inside(var) or None in readers.get(var, ()) for var in made)
    return bool(products) and not others and not written


def _products_before(cuts: Cuts, leader: Eqn) -> list[Eqn]:
    """The last ones of which what is reduced is made."""

    def makes(eqn: Eqn) -> list[Eqn]:
        made = variables(eqn.invars) if eqn is leader or not is_sum(eqn) else ()
        return [cuts.maker(var) for var in made if cuts.is_inside(var)]

    return [eqn for eqn in reachable([leader], makes) if eqn.primitive is lax.dot_general_p]


def is_sum(eqn: Eqn) -> bool:
    return eqn.primitive is lax.dot_general_p or eqn.primitive.name in TABLE


def _chunks_of(total: Total, policy: Policy) -> Split:
    """As many as there are to be programs, each of which walks along one."""
    (shape, (dim, *_)), batch = total.summed, total.eqn.params["dimension_numbers"][1][total.place]
    length, shared = shape[dim], math.prod(shape[d] for d in batch)
    rows = math.prod(shape) // (length * shared)
    if are_enough(rows, shared, policy):
        return Split((dim,), length, length)
    wanted = -(-4 * policy.target.processors // (shared * -(-rows // LEAST)))
    return Split((dim,), length, max(power_of_two(-(-length // wanted)), policy.products.terms_of_a_chunk))
