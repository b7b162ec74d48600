"""Everyday operations after each other at full size: what is planned for them leaves no device idle.

Drawn programs are small, and so are those of the tests that run; whether there are programs enough is seen only here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.policy import DEFAULT_POLICY
from jaxpr2triton.report.slow_kernels import doubts_about

Operation = Callable[[Any, Any], Any]  # of a matrix, or what other operations have made of it, and another matrix

ROWS = jax.ShapeDtypeStruct((2048, 1024), jnp.float32)
SQUARE = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
OPERATIONS: dict[str, Operation] = {
    "softmax of columns": lambda x, _: jax.nn.softmax(x, 0),
    "softmax": lambda x, _: jax.nn.softmax(x, -1),
    "log-softmax": lambda x, _: jax.nn.log_softmax(x, -1),
    "logsumexp of columns": lambda x, _: x - jax.nn.logsumexp(x, 0),
    "less the sums of columns": lambda x, _: x - x.sum(0),
    "sums of columns": lambda x, _: x.sum(0),
    "sums of rows": lambda x, _: x.sum(-1),
    "less the largest": lambda x, _: x - x.max(),
    "layer norm": lambda x, _: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3),
    "batch norm": lambda x, _: (x - x.mean(0)) / (x.std(0) + 1e-3),
    "running sums down": lambda x, _: jnp.cumsum(x, 0),
    "running sums": lambda x, _: jnp.cumsum(x, -1),
    "running maxima": lambda x, _: lax.cummax(x, axis=x.ndim - 1),
    "sorted columns": lambda x, _: jnp.sort(x, 0),
    "sorted": lambda x, _: jnp.sort(x, -1),
    "largest few": lambda x, _: x + lax.top_k(x, 8)[0].sum(-1, keepdims=True),
    "less the median": lambda x, _: x - jnp.median(x, -1, keepdims=True),
    "place of the largest": lambda x, _: jnp.where(jnp.argmax(x, -1, keepdims=True) > 3, x, -x),
    "place of the largest down": lambda x, _: jnp.where(jnp.argmax(x, 0) > 3, x, -x),
    "product": lambda x, w: x @ w,
    "gram matrix": lambda x, _: x.T @ x if x.ndim == 2 else x * x[0],
    "distances": lambda x, w: ((x[:, None, :64] - w[None, :, :64]) ** 2).sum(-1) if x.ndim == 2 else x,
    "turned": lambda x, _: x.T,
    "upside down": lambda x, _: x[::-1],
    "rolled": lambda x, _: jnp.roll(x, 3, 0) * x,
    "padded": lambda x, _: jnp.pad(x[..., 1:], [(0, 0)] * (x.ndim - 1) + [(1, 0)]),
    "joined": lambda x, _: jnp.concatenate([x[..., 512:], x[..., :512]], -1),
    "other rows": lambda x, _: x[jnp.arange(x.shape[0]) * 7 % x.shape[0]],
    "differences": lambda x, _: x.at[1:].add(-x[:-1]),
    "tanh": lambda x, _: jnp.tanh(x),
}
NUMBER = {name: number for number, name in enumerate(OPERATIONS)}


def both(first: str, second: str) -> Operation:
    return lambda x, w: OPERATIONS[second](OPERATIONS[first](x, w), w)


def doubts(function: Operation, contractions: str) -> list[str]:
    try:
        jax.eval_shape(function, ROWS, SQUARE)
    except TypeError:
        return []  # shapes that do not fit each other
    made = j2t.transpile(function, ROWS, SQUARE, contractions=contractions, for_target="sm_90")
    return [doubt for kernel in made.kernels for doubt in doubts_about(kernel, DEFAULT_POLICY)]


@pytest.mark.parametrize("first", OPERATIONS)
def test_two_operations(first: str) -> None:
    """A third of the pairs, each second one in another third than the one before it."""
    for number, second in enumerate(OPERATIONS):
        if (number + NUMBER[first]) % 3 == 0:
            found = doubts(both(first, second), ("auto", "triton")[number % 2])
            assert not found, (first, second, found)


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for number, pair in enumerate(itertools.product(OPERATIONS, repeat=2)) if number % 17 == 0],
)
def test_gradients_of_two_operations(first: str, second: str) -> None:
    found = doubts(jax.grad(lambda x, w: (both(first, second)(x, w) ** 2).sum(), (0, 1)), "auto")
    assert not found
