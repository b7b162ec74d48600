"""Axes of size 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.normalize.arrays.sizes import fold_empty
from tests.normalize.passing import after, primitives_of, traced

EMPTY = np.zeros((0, 4), np.float32)
SINGLE = np.array([[[1.5], [-2.0]]], np.float32)  # 1 2 1

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")


def _reduce(name: str, x: Any, axes: tuple[int, ...]) -> Any:
    method = {"reduce_sum": lax.reduce_sum, "reduce_prod": lax.reduce_prod}
    method |= {"reduce_max": lax.reduce_max, "reduce_min": lax.reduce_min}
    method |= {"reduce_and": lax.reduce_and, "reduce_or": lax.reduce_or}
    return method[name](x, axes)


def test_before_and_after() -> None:
    assert str(after(fold_empty, lambda x: (jnp.sin(x), lax.reduce_max(x, [0])), EMPTY)) == (
        "{ lambda ; a:f32[0,4]. let\n"
        "    b:f32[0,4] = broadcast_in_dim 0.0:f32[]\n"
        "    c:f32[4] = broadcast_in_dim -inf:f32[]\n"
        "  in (b, c) }"
    )


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8"])
def test_reductions_of_nothing(name: str, dtype: str) -> None:
    result = after(fold_empty, lambda x: _reduce(name, x, (0,)), EMPTY.astype(jnp.dtype(dtype)))
    assert primitives_of(result) == ["broadcast_in_dim"]


@pytest.mark.parametrize("name", ["reduce_and", "reduce_or"])
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_logical_reductions_of_nothing(name: str, dtype: str) -> None:
    result = after(fold_empty, lambda x: _reduce(name, x, (0,)), EMPTY.astype(dtype))
    assert primitives_of(result) == ["broadcast_in_dim"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_one(name: str) -> None:
    assert primitives_of(after(fold_empty, lambda x: _reduce(name, x, (0, 2)), SINGLE)) == ["squeeze"]
    assert primitives_of(after(fold_empty, lambda x: _reduce(name, x, (0, 1)), SINGLE)) == ["squeeze", name]
    assert primitives_of(after(fold_empty, lambda x: _reduce(name, x, (0, 1, 2)), SINGLE)) == ["squeeze", name]


def test_a_sum_of_one_keeps_its_zero() -> None:
    result = fold_empty(traced(lambda x: lax.reduce_sum(x, [0]), np.array([-0.0], np.float32)))
    assert primitives_of(result) == ["squeeze"]


@pytest.mark.parametrize(
    ("function", "args", "left"),
    [
        (lambda x: lax.argmax(x, 0, np.int32), [SINGLE], ["broadcast_in_dim"]),
        (lambda x: lax.argmin(x, 1, np.int32), [SINGLE], ["argmin"]),
        (lambda e, x: lax.concatenate([e, x, e, x], 0), [EMPTY, np.ones((2, 4), np.float32)], ["concatenate"]),
        (lambda e, x: jnp.sin(lax.concatenate([e, x], 0)), [EMPTY, np.ones((2, 4), np.float32)], ["sin"]),
        (lambda e: lax.pad(e, np.float32(2), [(1, 2, 0), (0, 1, 0)]), [EMPTY], ["broadcast_in_dim"]),
        (lambda x: lax.reduce_sum(x, [1]), [np.ones((3, 2), np.float32)], ["reduce_sum"]),
        (lambda e, x: e @ x, [np.ones((3, 0), np.float32), np.ones((0, 2), np.float32)], ["broadcast_in_dim"]),
        (lambda x, e: lax.dynamic_update_slice(x, e, (0, 0)), [np.ones((2, 4), np.float32), EMPTY], []),
        (lambda e: lax.sort(e), [EMPTY], ["broadcast_in_dim"]),
    ],
)
def test_others(function: Callable[..., Any], args: list[Any], left: list[str]) -> None:
    assert primitives_of(after(fold_empty, function, *args)) == left


def test_a_concatenation_loses_its_empty_parts() -> None:
    result = fold_empty(traced(lambda e, x: lax.concatenate([e, x, e, x], 0), EMPTY, np.ones((2, 4), np.float32)))
    assert len(result.jaxpr.eqns[0].invars) == 2


def test_several_outputs() -> None:
    assert primitives_of(after(fold_empty, lambda x: lax.top_k(x, 2), EMPTY)) == ["broadcast_in_dim"] * 2


def test_arrays_of_no_keys_stay() -> None:
    before = traced(lambda key: jax.random.split(key, (0,)), jax.random.key(0))
    assert primitives_of(fold_empty(before)) == primitives_of(before) == ["random_split"]
