"""What each reduction is, is said by its row; where passes list names by hand, each name is listed or left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph.origins import EXTREMES, PLACES, SUMS
from jaxpr2triton.ir.operation_names import _WORDS
from jaxpr2triton.ir.rounded import CHOICES
from jaxpr2triton.normalize.arrays.sizes import SETTLED
from jaxpr2triton.normalize.calls.identities import IDENTITIES
from jaxpr2triton.normalize.loops import carry, stored
from jaxpr2triton.normalize.numbers.splat import UNIFORM
from jaxpr2triton.plan.partition.cut_reasons import WORDS
from jaxpr2triton.rules.reductions import TABLE, Outcome
from jaxpr2triton.rules.rows import ADDED, names_of
from jaxpr2triton.rules.sweeps import TABLE as SWEEPS
from jaxpr2triton.shards.walks import _HOW, _OF_TRUTHS

SEVERAL = {"argmax", "argmin", "reduced"}  # elements have several parts
OF_BITS = {"reduce_and", "reduce_or", "reduce_xor"}
LISTS: Mapping[str, tuple[Collection[str], Collection[str]]] = {  # … and the names that it leaves out on purpose
    "arrays without elements, and axes of one": (SETTLED, ()),
    "along no axes it is its operand": (IDENTITIES, SEVERAL),  # which JAX refuses, or which have one axis
    "of an array of one number": (UNIFORM, {*SEVERAL, "reduce_xor"}),
    "carried by a loop rather than written and reduced": (carry.COMBINED, SEVERAL),
    "of a value in tiles": (stored.REDUCTIONS, {*SEVERAL, "reduce_xor"}),
    "what a kernel waits for, in words": (WORDS, {*OF_BITS, "reduced"}),  # a reduction
    "names of values": (_WORDS, {"reduced"}),  # which is one
    "of the parts of several devices": ({**_HOW, **_OF_TRUTHS}, {*SEVERAL, "reduce_prod", "reduce_xor"}),  # gathered
}


@pytest.mark.parametrize("what", LISTS)
def test_each_reduction_is_listed_or_left_out(what: str) -> None:
    listed, left_out = LISTS[what]
    assert TABLE.keys() - set(listed) == set(left_out)


def test_what_a_result_is_decides_whether_copies_of_it_are_one() -> None:
    """Two copies of a sum may differ in the last digit; the largest of them does not, and where it is must not."""
    every = {*TABLE, *SWEEPS}
    groups = [names_of(outcome) for outcome in Outcome]
    assert sum(map(len, groups)) == len(every) and frozenset().union(*groups) == every
    assert names_of(Outcome.PLACE) == PLACES and names_of(Outcome.SELECTION) == EXTREMES
    assert every - PLACES - EXTREMES - SUMS == names_of(Outcome.BITS) == {"reduce_xor"}
    assert {name for name, row in TABLE.items() if row.indexed} == PLACES & TABLE.keys()
    assert CHOICES & TABLE.keys() == EXTREMES & TABLE.keys() - OF_BITS
    assert sorted(ADDED) == ["dot_general", "reduce_sum"] and sorted(carry.ROUNDED) == ["reduce_prod", "reduce_sum"]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 1), (1, 1), (2, 5)], ids=str)
@pytest.mark.parametrize("dimensions", [(), (1,), (0, 1)], ids=str)
def test_by_a_function_of_no_elements_or_one(shape: tuple[int, int], dimensions: tuple[int, ...]) -> None:
    def larger(one: Any, other: Any) -> Any:
        takes = (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
        return jnp.where(takes, one[0], other[0]), jnp.where(takes, one[1], other[1])

    def fn(x: Any) -> Any:
        places = lax.broadcasted_iota(np.int32, x.shape, 1)
        return lax.reduce((x, places), (np.float32(-np.inf), np.int32(2**31 - 1)), larger, dimensions)

    x = jax.random.normal(jax.random.key(0), shape)
    for got, want in zip(j2t.fuse(fn, backend="interpret")(x), jax.jit(fn)(x), strict=True):
        np.testing.assert_array_equal(got, want)
