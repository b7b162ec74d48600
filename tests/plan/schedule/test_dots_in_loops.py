"""Products in loops that are multiplied as matrices: which are, and where what they read stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Role

BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32


def rnn(u: Any, h: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(x + h @ u),) * 2, h, xs)


def until_small(u: Any, h: Any, xs: Any) -> Any:
    return lax.while_loop(lambda h: abs(h).max() > 0.1, lambda h: jnp.tanh(xs[0] + h @ u), h)


def of_each_step(us: Any, h: Any, xs: Any) -> Any:
    return lax.scan(lambda h, now: (jnp.tanh(now[0] + h @ now[1]), None), h, (xs, us))[0]


def there_and_back(u: Any, h: Any, xs: Any) -> Any:
    """What is summed in one product is what the other one has results for."""

    def step(h: Any, x: Any) -> Any:
        wide = jnp.tanh(h @ u)
        return jnp.tanh(x + wide @ u.T), wide

    return lax.scan(step, h, xs)


def kernel(fn: Callable[..., Any], dtype: Any, rows: int, columns: int, wide: int = 0, target: str = "sm_90") -> Any:
    u = (9, columns, columns) if fn is of_each_step else (columns, wide or columns)
    args = (jax.ShapeDtypeStruct(shape, dtype) for shape in (u, (rows, columns), (9, rows, columns)))
    (found,) = j2t.transpile(fn, *args, strict=True, contractions="triton", for_target=target).kernels
    return found


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("columns", [16, 64])
def test_sixteen_bits_are_multiplied_as_matrices(dtype: Any, columns: int) -> None:
    found = kernel(rnn, dtype, 64, columns)
    before, body = found.source.split("for t in")
    assert "tl.dot(" in body and "tl.load(u_ptr" in before and "u_ptr" not in body
    assert next(axis.block for axis in found.axes if axis.role is Role.GRID) == 8


@pytest.mark.parametrize(
    ("fn", "dtype", "rows", "columns"),
    [
        (rnn, F32, 64, 64),  # as exactly as f32 is multiplied everywhere else in loops
        (rnn, BF16, 4, 64),  # fewer rows than are multiplied at once
        (rnn, BF16, 64, 8),  # fewer terms
        (rnn, BF16, 64, 300),  # more than shared memory holds
        (until_small, BF16, 64, 64),  # one row ends after another
        (of_each_step, BF16, 64, 64),  # another matrix in each step
    ],
)
def test_others_are_multiplied_and_summed(fn: Any, dtype: Any, rows: int, columns: int) -> None:
    assert "tl.dot(" not in kernel(fn, dtype, rows, columns).source


def test_a_matrix_and_its_transpose() -> None:
    source = kernel(there_and_back, BF16, 64, 32, 64).source
    assert source.count("tl.dot(") == 2 and source.count("tl.trans(") == 1


def test_a_step_begins_with_what_it_reads() -> None:
    body = kernel(rnn, BF16, 64, 64).source.split("for t in")[1].splitlines()
    where = [next(n for n, line in enumerate(body) if text in line) for text in ("tl.load(xs", "tl.dot(", "xs_read.to")]
    assert where == sorted(where)


def test_sixteen_rows_where_no_unit_takes_eight() -> None:
    found = kernel(rnn, BF16, 4096, 128, target="gfx942")
    assert next(axis.block for axis in found.axes if axis.role is Role.GRID) == 16
    assert found.num_warps in (2, 4)
