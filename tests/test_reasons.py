"""Why something stays with XLA: each reason by a program that has it, word for word.

Other reasons stand beside what they are about, in tests/plan, tests/report and tests/shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.graph.needless import why_not_chosen


def floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def integers(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.int32)


def folded(combine: Callable[..., Any], start: float = 0.0) -> Callable[..., Any]:
    return lambda x: lax.reduce(x, np.float32(start), combine, (0,))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "it begins with numbers that the program computes": (
        lambda x, start: lax.reduce(x, start, lambda a, b: a * b + a + b, (0,)),
        (floats(8), floats()),
    ),
    "its function has a `stack`, which is no operation on single numbers": (
        folded(lambda a, b: jnp.stack([a, b]).max()),
        (floats(8),),
    ),
    "it begins with numbers that change what they are combined with": (
        folded(lambda a, b: a * b + a + b, 3.0),
        (floats(8),),
    ),
    "its function is not associative": (folded(lambda a, b: a + b - a * b * b), (floats(8),)),
    "no kernel multiplies with the algorithm BF16_BF16_F32_X3": (
        lambda a, b: lax.dot(a, b, precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X3),
        (floats(16, 16), floats(16, 16)),
    ),
}


@pytest.mark.parametrize("why", PROGRAMS)
def test_reasons_of_programs(why: str) -> None:
    function, args = PROGRAMS[why]
    (left,) = j2t.transpile(function, *args, contractions="triton").leftovers
    assert left.why == why


ONE_PER_ROW = lax.ScatterDimensionNumbers((), (0,), (0,))
WITH_A_MODE: Any = {"mode": lax.GatherScatterMode.ONE_HOT}

# Of equations as they are traced; `normalize` finds other words for most of them.
EQUATIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "`cholesky` is written with other primitives, before kernels are made": (
        lambda a: lax.linalg.cholesky(a, symmetrize_input=False),
        (floats(3, 3),),
    ),
    "`create_token` works on AbstractToken(), which is not an array": (lambda x: lax.create_token(x), (floats(),)),
    "the mode GatherScatterMode.ONE_HOT has no rule": (
        lambda x, i: lax.scatter_add(x, i, x[:3], ONE_PER_ROW, **WITH_A_MODE),
        (floats(8), integers(3, 1)),
    ),
    "the matrix has no elements": (lambda p: lax.linalg.lu_pivots_to_permutation(p, 3), (integers(0),)),
    "its result has no elements": (lambda x: lax.sort(x), (floats(0),)),
}


def refusals(jaxpr: Any) -> list[str]:
    return [str(refusal) for eqn in jaxpr.eqns if (refusal := why_not(eqn)) is not None]


@pytest.mark.parametrize("why", EQUATIONS)
def test_reasons_of_equations(why: str) -> None:
    function, args = EQUATIONS[why]
    assert why in refusals(jax.make_jaxpr(function)(*args).jaxpr)


def test_a_scatter_whose_name_is_not_what_it_does() -> None:
    def added(x: Any, i: Any) -> Any:
        return lax.scatter_add(x, i, x[:3], ONE_PER_ROW)

    jaxpr = jax.make_jaxpr(added)(floats(8), integers(3, 1)).jaxpr
    function = jax.make_jaxpr(lambda a, b: a * b)(floats(), floats()).jaxpr
    (eqn,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scatter-add"]
    refusal = why_not(eqn.replace(params={**eqn.params, "update_jaxpr": function}))
    assert str(refusal) == "it applies a function of its own"


def test_a_branch_that_holds_an_array() -> None:
    holding = jax.make_jaxpr(lambda x: x + jnp.arange(3.0))(floats(3))
    closed = jax.make_jaxpr(lambda x: x + jnp.asarray(np.arange(3.0, dtype=np.float32)))(floats(3))
    assert why_not_chosen([holding, holding]) is None
    refusal = why_not_chosen([holding, closed])
    assert isinstance(refusal, WhyNot)
    assert str(refusal) == "a branch of the `cond` holds an array, which is not among its operands"
