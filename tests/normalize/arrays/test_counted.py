"""Gathers and scatters at `arange(n)` and a computed place: each lane has a row of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import outputs, traced

RNG = np.random.default_rng(3)
N = 6
X = RNG.normal(size=(N, 5, 3)).astype(np.float32)
PLACES = RNG.integers(-5, 7, N, dtype=np.int32)  # some of them outside


def rows(dtype: Any = jnp.int32) -> Any:
    return jnp.arange(N, dtype=dtype)


COUNTED: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda x, i: x[rows(), i],
    "read with a window": lambda x, i: x[rows(), i, 1:],
    "read last": lambda x, i: x.transpose(1, 2, 0)[i, 2, rows()],
    "small counts": lambda x, i: x[rows(jnp.uint8), i],
    "several of each": lambda x, i: x[rows()[:, None], i[:, None] + jnp.arange(2)],
    "filled": lambda x, i: x.at[rows(), i].get(mode="fill", fill_value=7.0),
    "written": lambda x, i: x.at[rows(), i].set(jnp.sin(x[:, 0])),
    "added": lambda x, i: x.at[rows(), i].add(x[:, 1]),
    "two of each added": lambda x, i: x.at[rows()[:, None], i[:, None] + jnp.arange(2), 0].add(x[:, :2, 1]),
    "in batches": lambda x, i: jax.vmap(lambda x, i: x.at[rows(), i, 0].set(i * 1.0))(
        jnp.stack([x, -x]), i[None] + jnp.arange(2)[:, None]
    ),
}
NOT_COUNTED: dict[str, Callable[[Any, Any], Any]] = {
    "other rows": lambda x, i: x[rows() - 1, i],
    "some rows": lambda x, i: x[jnp.arange(4), i[:4]],
    "not one each": lambda x, i: x[rows()[:, None], i],
    "the other way": lambda x, i: x[rows()[::-1], i],
}


def batches(closed: Any) -> list[int]:
    """How many batch dimensions each gather and scatter has."""
    eqns = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name.startswith(("gather", "scatter"))]
    return [len(eqn.params["dimension_numbers"].operand_batching_dims) for eqn in eqns]


@pytest.mark.parametrize("name", [*COUNTED, *NOT_COUNTED])
def test_values(name: str) -> None:
    function = (COUNTED | NOT_COUNTED)[name]
    expected = jax.jit(function)(X, PLACES)
    (found,) = outputs(normalize(traced(function, X, PLACES)), (X, PLACES))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(j2t.fuse(function, backend="interpret")(X, PLACES), expected)


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_is_a_batch(name: str) -> None:
    assert min(batches(normalize(traced(COUNTED[name], X, PLACES)))) >= (2 if name == "in batches" else 1)


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_what_is_not_is_none(name: str) -> None:
    assert max(batches(normalize(traced(NOT_COUNTED[name], X, PLACES)))) == (1 if name == "not one each" else 0)


def test_counts_that_begin_anew_are_no_batch() -> None:
    """As those of a type that is too small."""
    x = jnp.zeros((300, 5))

    def function(x: Any, i: Any) -> Any:
        return x[jnp.arange(300).astype(jnp.int8).astype(jnp.int32), i]

    assert batches(normalize(traced(function, x, jnp.zeros(300, jnp.int32)))) == [0]


def test_many_lanes() -> None:
    """More than are computed before the program runs."""
    shapes = jax.ShapeDtypeStruct((100_000, 5), np.float32), jax.ShapeDtypeStruct((100_000,), np.int32)
    made = j2t.transpile(lambda x, i: x.at[jnp.arange(100_000), i].add(1.0), *shapes)
    assert not made.leftovers
