"""Two index operations become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

from jaxpr2triton.normalize.arrays.indices import compose_indices
from jaxpr2triton.normalize.calls.dead import remove_dead
from tests.normalize.passing import after, primitives_of, traced

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.T.T, []),
        (lambda x: x.transpose(1, 2, 0).transpose(0, 2, 1), ["transpose"]),
        (lambda x: x.reshape(6, 4).reshape(24).reshape(3, 8), ["reshape"]),
        (lambda x: x.reshape(24).reshape(x.shape), []),
        (lambda x: lax.broadcast(lax.broadcast(x, (3,)), (5,)), ["broadcast_in_dim"]),
        (lambda x: lax.rev(lax.rev(x, (0, 1)), (1, 0)), []),
        (lambda x: lax.rev(lax.rev(x, (0, 1)), (1, 2)), ["rev"]),
        (lambda x: x[1:, :2][:, 1:, ::2], ["slice"]),
        (lambda x: lax.squeeze(lax.squeeze(x[:1, :, :1], (2,)), (0,)), ["slice", "squeeze"]),
        (lambda x: lax.squeeze(x[:1, :, :1], (0, 2)).reshape(3, 1), ["slice", "reshape"]),
        (lambda x: lax.squeeze(x.reshape(1, 24), (0,)), ["reshape"]),
        (lambda x: lax.squeeze(x.reshape(1, 2, 3, 4), (0,)), []),
        (lambda x: x.T.reshape(4, 6).T, ["transpose", "reshape", "transpose"]),
    ],
)
def test_pairs(function: Callable[[Any], Any], left: list[str]) -> None:
    assert primitives_of(remove_dead(after(compose_indices, function, X))) == left


def test_before_and_after() -> None:
    assert str(remove_dead(after(compose_indices, lambda x: jnp.sin(x.transpose(2, 0, 1).transpose(1, 0, 2)), X))) == (
        "{ lambda ; a:f32[2,3,4]. let\n"
        "    b:f32[2,4,3] = transpose[permutation=(0, 2, 1)] a\n"
        "    c:f32[2,4,3] = sin b\n"
        "  in (c,) }"
    )


@given(st.data())
def test_slices_of_slices(data: st.DataObject) -> None:
    size, steps = data.draw(st.integers(1, 20)), st.integers(1, 3)

    def draw(size: int) -> tuple[int, int, int]:
        start = data.draw(st.integers(0, size))
        return start, data.draw(st.integers(start, size)), data.draw(steps)

    first = draw(size)
    second = draw(len(range(*first)))
    x = np.arange(size)
    result = compose_indices(traced(lambda x: lax.slice(lax.slice(x, *zip(first)), *zip(second)), x.astype(np.int32)))
    (eqn,) = remove_dead(result).jaxpr.eqns
    start, limit, stride = (
        eqn.params["start_indices"][0],
        eqn.params["limit_indices"][0],
        (eqn.params["strides"] or (1,))[0],
    )
    assert list(x[start:limit:stride]) == list(x[first[0] : first[1] : first[2]][second[0] : second[1] : second[2]])


def test_programs_without_index_operations_are_returned_as_they_are() -> None:
    before = traced(jnp.sin, X)
    assert compose_indices(before) is before
