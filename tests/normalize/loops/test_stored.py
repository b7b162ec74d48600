"""What is computed of the results of loops in tiles of steps is computed by these loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(7)
STEPS, LANES = 48, 8
A, X = (RNG.uniform(0.2, 0.9, (STEPS, LANES)).astype(np.float32) for _ in range(2))


def running(a: Any, x: Any) -> Any:
    def step(h: Any, ax: Any) -> Any:
        h = ax[0] * h + ax[1]
        return h, h

    return lax.scan(step, jnp.zeros(x.shape[1:]), (a, x))[1]


READ: dict[str, Callable[[Any, Any], Any]] = {
    "turned": lambda a, x: running(a, x).T,
    "of lanes": lambda a, x: jax.vmap(running, (1, 1))(a[:, :, None], x[:, :, None]),
    "pointwise": lambda a, x: jnp.tanh(running(a, x)) * x + 1,
    "turned and read": lambda a, x: jnp.exp(-running(a, x)).T - x.T,
    "summed across": lambda a, x: (running(a, x) * x).sum(1),
    "largest of all steps": lambda a, x: jnp.tanh(running(a, x)).max(0),
    "of two": lambda a, x: running(a, x) - running(a, x * 2),
    "of numbers": lambda a, x: jnp.where(running(a, x) > 2, 0.0, jnp.clip(running(a, x), 0.3, 0.8)),
    "with rows": lambda a, x: running(a, x) + x[0],
    "backwards": lambda a, x: running(a, x)[::-1] * 2,
}
OTHERS = {"backwards"}


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("name", READ)
def test_values(name: str, backend: str) -> None:
    found = j2t.fuse(READ[name], backend=backend, strict=True)(A, X)
    np.testing.assert_allclose(found, jax.jit(READ[name])(A, X), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in READ if name not in OTHERS])
def test_there_is_one_kernel(name: str) -> None:
    long = [np.resize(each, (2048, LANES)) for each in (A, X)]
    (kernel,) = j2t.transpile(READ[name], *long).kernels
    assert "associative_scan" in kernel.source


def test_lanes_of_a_loop_that_are_summed_afterwards_are_no_variables() -> None:
    """Programs run a loop once for all of them."""
    found = j2t.fuse(lambda a, x: running(a, x).sum(1), backend="interpret", strict=True)(A, X)
    np.testing.assert_allclose(found, np.asarray(running(A, X)).sum(1), rtol=1e-5)
