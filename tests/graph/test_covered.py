"""Which equations a kernel can hold, and the sentence when it cannot; the one table of all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.graph.covered import call_of, why_not
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep

F32, I32 = np.float32, np.int32


def last_equation(fn: Callable[..., Any], *args: Any) -> Any:
    return jax.make_jaxpr(fn)(*args).jaxpr.eqns[-1]


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x: x + 1, [np.zeros((3, 4), F32)]),
        (lambda x: lax.reduce_sum(x, (0,)), [np.zeros((0, 4), F32)]),
        (lambda x: lax.transpose(x, (1, 0)), [np.zeros((3, 4), jnp.bfloat16)]),
        (lambda: lax.iota(I32, 5), []),
        (lambda x: lax.argmax(x, 0, I32), [np.zeros((3, 4), np.bool_)]),
    ],
)
def test_a_kernel_can(fn: Callable[..., Any], args: list[Any]) -> None:
    assert why_not(last_equation(fn, *args)) is None


@pytest.mark.parametrize(
    ("fn", "args", "reason"),
    [
        (lambda x: lax.sort(x), [np.zeros(4, F32)], "there is no rule for the primitive `sort`"),
        (lambda x: x + 1j, [np.zeros(4, np.complex64)], "the dtype complex64 is not supported in a kernel"),
        (lambda x: x * 2, [np.zeros(4, jnp.float8_e4m3fn)], "the dtype float8_e4m3fn is not supported in a kernel"),
        (lambda x: x * 2, [np.zeros((0, 4), F32)], "its result has no elements"),
        (lambda x: lax.pad(x, 0.0, [(2, 3, 0)]), [np.zeros(0, F32)], "it pads an array without elements"),
        (lambda k: jax.random.bits(k, (3,)), [jax.random.key(0)], "the dtype key<fry> is not supported in a kernel"),
    ],
)
def test_a_kernel_cannot(fn: Callable[..., Any], args: list[Any], reason: str) -> None:
    eqns = jax.make_jaxpr(fn)(*args).jaxpr.eqns
    assert [str(why_not(eqn)) for eqn in eqns if why_not(eqn)] == [reason]


def test_an_equation_as_its_row_sees_it() -> None:
    eqn = last_equation(lambda x: x.astype(I32), np.zeros((3, 4), F32))
    call = call_of(eqn)
    assert call == Call((np.dtype(F32),), np.dtype(I32), eqn.params)


def test_rows_are_of_four_sorts() -> None:
    assert {type(row) for row in TABLE.values()} == {Pointwise, Indexing, Reduction, Sweep}
