"""What XLA launches outside of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.kernel import Alone, Launches
from jaxpr2triton.ir.launches import launches_outside_loops

X = np.ones((4, 4), np.float32)


def steps(count: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=count)[0]


def test_in_all() -> None:
    assert (Launches(3, 100).in_all, Launches(3, None).in_all) == (300, None)


def relu_of_product(x: Any) -> Any:
    return jax.nn.relu(jnp.sin(x) @ x) * 2


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: jnp.tanh(x) * 2, 1),
        (lambda x: (jnp.tanh(x), x * 2), 1),  # of one shape and at one time
        (lambda x: (jnp.tanh(x), x[0] * 2), 2),
        (lambda x: jnp.sin(x).sum(), 1),  # a sum makes what it reads
        (lambda x: x / x.sum(), 2),
        (lambda x: (x.sum(0), x.max(0), x.sum(1)), 2),  # what is walked the same way is walked once
        (lambda x: jnp.sqrt(x.sum(0) / 4).reshape(4, 1) * 2, 1),  # and its results are seen to at once
        (lambda x: jnp.sqrt(x.sum(0)) + x[0], 2),
        (jax.nn.softmax, 3),
        (relu_of_product, 3),  # what a product reads has to be in memory
        (jax.jit(relu_of_product), 3),
        (lambda x: x.reshape(16).reshape(2, 8), 0),
        (lambda x: jnp.sort(x * 2) * 2, 3),
        (lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ x, jnp.sin, x), 2),  # one choice, and what it reads
        (lambda x: lax.cond(x[0, 0] > 0, steps(9, lambda c: c @ c), jnp.sin, x), 2),
        (lambda x: steps(100, lambda c: c @ c)(x * 2) + 1, 2),  # those of a loop are not
        (lambda x: lax.reduce_window(x * 2, 0.0, lax.add, (2, 2), (1, 1), "SAME"), 2),
        (lambda x: x, 0),
    ],
)
def test_launches_outside_loops(fn: Callable[[Any], Any], expected: int) -> None:
    assert launches_outside_loops(jax.make_jaxpr(fn)(X)) == expected


def test_in_all_of_a_whole_program() -> None:
    known, endless = ("scan", Launches(3, 100)), ("while", Launches(2, None))
    assert (Alone(5).in_all, Alone(5, (known, known)).in_all, Alone(5, (known, endless)).in_all) == (5, 605, None)
