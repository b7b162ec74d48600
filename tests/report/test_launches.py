"""What XLA launches for a loop, at least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.kernel import Launches
from jaxpr2triton.report.launches import launches_of

X = np.ones((4, 4), np.float32)


def steps(count: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=count)[0]


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (steps(100, lambda c: jnp.tanh(c) * 2), Launches(1, 100)),
        (steps(100, lambda c: jnp.tanh(c @ c)), Launches(2, 100)),
        (steps(100, lambda c: c - jnp.sort(c, 0).sum(0)), Launches(3, 100)),
        (steps(100, jax.jit(lambda c: c @ c)), Launches(2, 100)),
        (steps(100, steps(10, lambda c: c @ c)), Launches(21, 100)),
        (steps(100, lambda c: lax.cond(c[0, 0] > 0, lambda c: c @ c @ c, lambda c: c @ c, c)), Launches(2, 100)),
        (steps(100, lambda c: lax.reduce_precision(c, 8, 7)), Launches(1, 100)),
        (lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ c, x), Launches(2, None)),
        (lambda x: x @ x, None),
    ],
)
def test_launches(fn: Callable[[Any], Any], expected: Launches | None) -> None:
    (eqn,) = jax.make_jaxpr(fn)(X).jaxpr.eqns
    assert launches_of(eqn) == expected


def test_in_all() -> None:
    assert (Launches(3, 100).in_all, Launches(3, None).in_all) == (300, None)
