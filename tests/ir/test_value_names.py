"""What is in memory has one name, in the kernel that writes it and in those that read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

ROWS = jax.ShapeDtypeStruct((4, 5), np.float32)
ROW = jax.ShapeDtypeStruct((5,), np.float32)


def buffers(fn: Callable[..., Any], *avals: Any) -> list[tuple[list[str], list[str]]]:
    """What each kernel reads and writes."""
    kernels = j2t.transpile(fn, *avals).kernels
    return [([b.name for b in kernel.inputs], [b.name for b in kernel.outputs]) for kernel in kernels]


def loss(x: Any, w: Any) -> Any:
    return (jnp.sin(x) * w).sum()


def running(x: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = jnp.tanh(h + row)
        return h, h

    return lax.scan(step, jnp.zeros(5), x)


def test_results_under_keys() -> None:
    assert buffers(lambda x: {"loss": x.sum(), "parts": [x * 2]}, ROWS) == [(["x"], ["loss", "parts_0"])]
    assert buffers(lambda x: (x * 2, x + 1), ROWS) == [(["x"], ["out0", "out1"])]


def test_gradients_are_cotangents_of_arguments() -> None:
    assert buffers(jax.grad(loss, argnums=(0, 1)), ROWS, ROW) == [(["x", "w"], ["d_w", "d_x"])]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jax.grad(lambda x: (jnp.sin(x) * y).sum())(x),  # x or y: both have the type
        lambda x: jax.grad(lambda s: (jnp.sin(s) * s).sum())(jnp.exp(x)),  # of exp(x), not of x
    ],
)
def test_no_gradient_is_named_by_guess(fn: Callable[..., Any]) -> None:
    count = fn.__code__.co_argcount
    assert [writes for _, writes in buffers(fn, *[ROWS] * count)] == [["out"]]


def test_what_a_loop_carries_and_puts_out() -> None:
    assert buffers(running, ROWS) == [(["x"], ["h", "hs"])]


def test_a_value_is_called_alike_where_it_is_written_and_read() -> None:
    def normed(x: Any) -> Any:
        scale = jnp.abs(x).max()
        return x / scale + lax.sort(x / 2)

    kernels = buffers(normed, jax.ShapeDtypeStruct((300, 5000), np.float32))
    read, written = ([name for kernel in kernels for name in kernel[side]] for side in (0, 1))
    assert "sort" in read and set(read) - {"x", "sort"} <= set(written)


def test_residuals_have_the_same_name_in_both_halves() -> None:
    program = j2t.transpile(lambda x: running(x)[1].sum(), ROWS, grad=0)
    written = {buffer.name for kernel in program.forward.kernels for buffer in kernel.outputs}
    read = {buffer.name for kernel in program.backward.kernels for buffer in kernel.inputs}
    kept = {residual.name for residual in program.residuals if residual.source == "new"}
    assert kept and kept <= written & read and kept <= {"h", "hs"}
    assert [b.name for b in program.backward.kernels[-1].outputs] == ["d_x"]


def test_partial_sums_are_parts_of_their_sum() -> None:
    long = jax.ShapeDtypeStruct((100_000, 64), np.float32)
    assert buffers(lambda x: {"mass": x.sum(0)}, long) == [(["x"], ["mass_parts"]), (["mass_parts"], ["mass"])]


def test_the_words_of_a_key_are_called_as_the_key() -> None:
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert buffers(lambda key: jax.random.normal(key, (5,)), key) == [(["key"], ["out"])]
