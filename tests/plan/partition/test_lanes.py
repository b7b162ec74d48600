"""Sums over lanes of a loop that programs could share out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.policies import planned_with


def lstm(recurrent: Any, inputs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x + h @ recurrent, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((inputs.shape[1], len(recurrent)))
    return lax.scan(step, (start, start), inputs)[1]


def loss(recurrent: Any, inputs: Any) -> Any:
    return (lstm(recurrent, inputs) ** 2).sum()


@pytest.mark.parametrize(("batch", "hidden"), [(32, 128), (64, 64), (128, 32)])
def test_a_step_that_is_one_chunk_of_a_sum_leaves_no_loop(batch: int, hidden: int) -> None:
    """The loop would be run once for each element of the chunk, each time with all of a row."""
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((hidden, 4 * hidden), (50, batch, 4 * hidden))]
    program = j2t.transpile(loss, *shapes, grad=0)
    for half in (program.forward, program.backward):
        assert [left.why for left in half.leftovers if left.primitive == "scan"] == []


def squares(recurrent: Any, inputs: Any) -> Any:
    """A sum in each step of all its lanes, which are one axis there."""
    return (lstm(recurrent, inputs).reshape(len(inputs), -1) ** 2).sum(1)


def squares_of_both(recurrent: Any, inputs: Any) -> Any:
    return (lstm(recurrent, inputs) ** 2).sum((1, 2))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize(("function", "carried"), [(squares, 200), (squares_of_both, 50)])
def test_what_is_summed_in_each_step_is_in_memory_if_one_program_cannot_hold_it(
    function: Any, carried: int, backend: str
) -> None:
    draw = np.random.default_rng(5).normal(size=(8 * 32 + 5 * 4 * 32)).astype(np.float32)
    recurrent, inputs = draw[: 8 * 32].reshape(8, 32) / 4, draw[8 * 32 :].reshape(5, 4, 32)
    with planned_with(target={"registers": carried * 100 // 62 + 1}):
        program = j2t.transpile(function, recurrent, inputs)
        got = j2t.fuse(function, backend=backend)(recurrent, inputs)
    assert len(program.kernels) == 2 and not program.leftovers
    np.testing.assert_allclose(got, jax.jit(function)(recurrent, inputs), rtol=1e-5)
