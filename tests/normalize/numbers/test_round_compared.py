"""16-bit values that are compared with one of their own elements."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.normalize.numbers.round_compared import round_compared
from tests.normalize.passing import after, primitives_of, traced

X = np.array([0.25, -1.5, 3.0], np.float16)


def test_before_and_after() -> None:
    result = after(round_compared, lambda x: lax.reduce_max(lax.sin(x * x), (0,)), X)
    assert primitives_of(result) == ["mul", "rounded", "sin", "rounded", "reduce_max"]


def test_only_what_leads_to_the_choice() -> None:
    result = after(round_compared, lambda x: (lax.reduce_max(-x, (0,)), lax.eq(lax.sin(x), x), lax.cos(x)), X)
    assert primitives_of(result) == ["neg", "reduce_max", "sin", "rounded", "eq", "cos"]


def test_not_what_lies_before_a_product() -> None:
    result = after(round_compared, lambda x: lax.reduce_max(jnp.outer(lax.sin(x), x) @ x, (0,)), X)
    assert primitives_of(result).count("rounded") == 1  # kernels that walk along it make it again
    assert primitives_of(result)[-2:] == ["rounded", "reduce_max"]


def test_a_product_of_which_something_rounded_is_made() -> None:
    result = after(round_compared, lambda x: lax.reduce_max(jnp.outer(lax.sin(x), x) @ x / 3, (0,)), X)
    assert primitives_of(result)[-4:] == ["dot_general", "div", "rounded", "reduce_max"]


def test_a_sum_of_one_product_is_a_product() -> None:
    result = after(round_compared, lambda x: lax.reduce_max(lax.sin(x)[:, None] @ x[None], (0, 1)), X)
    assert primitives_of(result).count("rounded") == 2


def test_once() -> None:
    once = after(round_compared, lambda x: lax.reduce_min(lax.sin(x), (0,)), X)
    assert round_compared(once) is once


@pytest.mark.parametrize(
    "function, dtype",
    [
        (lambda x: lax.reduce_max(lax.sin(x), (0,)), np.float32),
        (lambda x: lax.max(lax.sin(x), np.float16(0)), np.float16),
        (lambda x: lax.sin(x) < x, np.float16),
    ],
)
def test_left_alone(function: Any, dtype: Any) -> None:
    before = traced(function, X.astype(dtype))
    assert round_compared(before) is before


def test_all_of_a_loop_that_chooses_or_leads_to_a_choice() -> None:
    def choosing(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.sin(c) - lax.reduce_max(c, (0,)), None), x, None, length=2)[0]

    def chosen(x: Any) -> Any:
        return lax.reduce_max(lax.fori_loop(0, 3, lambda _, c: lax.sin(c), x), (0,))

    def neither(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: lax.sin(c), x)

    for function, count in ((choosing, 2), (chosen, 1), (neither, 0)):
        result = after(round_compared, lambda x, function=function: function(jnp.asarray(x)), X)
        (loop,) = (eqn for eqn in result.jaxpr.eqns if eqn.primitive.name in ("scan", "while"))
        assert str(loop.params["jaxpr" if loop.primitive.name == "scan" else "body_jaxpr"]).count("rounded") == count


def test_a_number_may_be_rounded_already() -> None:
    rounded = traced(lambda x: lax.reduce_max(x * rounded_p.bind(np.float16(0.5)), (0,)), X)
    assert primitives_of(round_compared(rounded)) == ["rounded", "mul", "rounded", "reduce_max"]
