"""Cutting and gluing with slices and concatenations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.normalize.arrays.structural import STRUCTURAL, expand_structure
from tests.normalize.passing import after, primitives_of, traced

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_before_and_after() -> None:
    assert str(after(expand_structure, lambda x: jnp.split(x, [1], axis=1), X)) == (
        "{ lambda ; a:f32[3,4]. let\n"
        "    b:f32[3,1] = slice[limit_indices=(3, 1) start_indices=(0, 0) strides=(1, 1)] a\n"
        "    c:f32[3,3] = slice[limit_indices=(3, 4) start_indices=(0, 1) strides=(1, 1)] a\n"
        "  in (b, c) }"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.split(x, 2, axis=1),
        lambda x: jnp.unstack(x, axis=0),
        lambda x: jnp.unstack(x, axis=1),
        lambda x: jnp.stack([x, x + 1, -x], axis=0),
        lambda x: jnp.stack([x, x], axis=2),
        lambda x: lax.dynamic_slice(x, (1, 2), (2, 2)),
        lambda x: lax.dynamic_slice(x, (-1, 7), (2, 2)),
    ],
)
def test_values(function: Callable[[Any], Any]) -> None:
    assert STRUCTURAL.keys().isdisjoint(primitives_of(after(expand_structure, function, X)))


def test_empty_arrays_become_zeros() -> None:
    result = expand_structure(traced(lambda: jax.numpy.empty((2, 3), jnp.int32)))
    assert "empty" not in primitives_of(result)


def test_a_slice_at_a_computed_index_stays() -> None:
    function = lambda x: lax.dynamic_slice(x, (x.argmax() // 4, 0), (1, 4)) * jnp.stack([x[0]])  # noqa: E731
    assert "dynamic_slice" in primitives_of(after(expand_structure, function, X))


def test_programs_without_structure_are_returned_as_they_are() -> None:
    before = traced(jnp.sin, X)
    assert expand_structure(before) is before
