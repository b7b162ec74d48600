"""Rewrite: a contraction of many terms with few results becomes two, so that many programs share the work.

    r:f32[32,10] = dot_general a:f32[65536,32] b:f32[65536,10]
        →
    p:f32[128,32,10] = boundary (dot_general[batch=chunks] (reshape a) (reshape b))
    r:f32[32,10]     = reduce_sum[axes=(0,)] p

The terms of each chunk are added by one program, and the chunks in their order, so that results repeat. Terms along
several dimensions, as the images and the pixels of a kernel's gradient, are shared out along the longest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
from jax import lax

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.plan.partition.criteria import is_chain
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.in_two import Law, in_memory, parts_of, wide_of
from jaxpr2triton.policy import Policy


def split_products(cuts: Cuts) -> Mapping[Eqn, Callable[..., jax.Array]]:
    """The contractions that are done in two steps, and what stands in their places."""
    boundaries = {eqn.invars[0] for eqn in cuts.jaxpr.eqns if eqn.primitive is boundary_p}
    found: dict[Eqn, Callable[..., jax.Array]] = {}
    for root in cuts.roots:
        space = cuts.spaces[root]
        for node in space.graph.of_kind(Reduce) if not space.steps and not is_chain(space, cuts.policy) else ():
            if is_contraction(node) and node.eqn.outvars[0] not in boundaries:
                chunks = _chunks(node.eqn, cuts.policy)
                if chunks > 1:
                    found[node.eqn] = partial(_in_two, node.eqn, chunks)
    return found


def _longest(eqn: Eqn) -> tuple[int, int, int]:
    """The dimension of the left factor, and of the right one, that most terms are along; and how many there are."""
    (left, right), _ = eqn.params["dimension_numbers"]
    shape = eqn.invars[0].aval.shape
    return max(zip(left, right, (shape[d] for d in left)), key=lambda each: each[2])


def _chunks(eqn: Eqn, policy: Policy) -> int:
    """So many that there are programs enough: of the least blocks, or else of larger ones, which read less.

    Four for each processor, as each of them waits for memory.
    """
    if not all(_has_rows(eqn, side) for side in (0, 1)):
        return 1  # of one side only: what is summed is the other one
    results = eqn.outvars[0].aval.size
    terms, longest = terms_of(eqn), _longest(eqn)[2]
    most = min(terms // policy.products.terms_of_a_chunk, longest)
    for block in reversed(policy.products.tf32):
        programs = max(1, results // (block.rows * block.columns))
        processors = policy.target.processors
        if min(processors // programs, most) >= numbers.COMMON.times:
            wanted = min(4 * processors // programs, most)
            return -(-longest // -(-longest // wanted))  # none beyond the end
    return 1


def _has_rows(eqn: Eqn, side: int) -> bool:
    """Whether a factor has dimensions of its own."""
    sums, batch = (dims[side] for dims in eqn.params["dimension_numbers"])
    shape = eqn.invars[side].aval.shape
    return any(size > 1 for d, size in enumerate(shape) if d not in (*sums, *batch))


def _in_two(eqn: Eqn, chunks: int, left: jax.Array, right: jax.Array) -> jax.Array:
    one, other, terms = _longest(eqn)
    size = -(-terms // chunks)
    law, parts = law_of_products(eqn, one, other), [parts_of(left, (one,), size, 0), parts_of(right, (other,), size, 0)]
    return law.end(law.fold(in_memory(law.fold(parts, ()), 0), (0,)))


def law_of_products(eqn: Eqn, one: int, other: int) -> Law:
    """Its sums, of factors whose dimensions `one` and `other` are in chunks."""
    dtype = eqn.outvars[0].aval.dtype
    (left_sums, right_sums), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    sums = _behind(left_sums, one), _behind(right_sums, other)
    batch = (one, *_behind(left_batch, one)), (other, *_behind(right_batch, other))
    params = {**eqn.params, "dimension_numbers": (sums, batch), "preferred_element_type": wide_of(dtype)}

    def fold(states: Sequence[jax.Array], axes: Sequence[int]) -> list[jax.Array]:
        return [eqn.primitive.bind(*states, **params) if len(states) == 2 else lax.reduce_sum(states[0], tuple(axes))]

    return Law(lambda factors: factors, (0, 0), fold, lambda states: lax.convert_element_type(states[0], dtype))


def _behind(dims: tuple[int, ...], cut: int) -> tuple[int, ...]:
    """Dimensions, once one is two: that one is known by its second part."""
    return tuple(d + (d >= cut) for d in dims)
