"""What is in many windows is in memory, where computing it again for each of them would take longer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.policies import planned_with
from tests.window_programs import convolved, image, numbers


def smoothed(x: Any, w: Any) -> Any:
    return convolved(jnp.sin(jnp.exp(x)), w)


def smoothed_and_summed(x: Any, w: Any) -> Any:
    waves = jnp.sin(jnp.exp(x))
    return convolved(waves, w), waves.sum((0, 1, 2))


def kernels(fn: Any, batch: int) -> Any:
    args = jax.ShapeDtypeStruct((batch, 32, 32, 16), np.float32), jax.ShapeDtypeStruct((5, 5, 16, 16), np.float32)
    return j2t.transpile(fn, *args, contractions="triton", strict=True)


def test_what_would_be_computed_for_each_window_is_kept() -> None:
    made = kernels(smoothed, 64)
    assert len(made.kernels) == 2
    assert made.kernels[1].flops < 1.1 * 2 * 64 * 32 * 32 * 16 * 16 * 25
    assert "1,048,576 values would be computed again and again, for each window that they are in" in str(
        [each.why for each in made.summary.apart]
    )


def test_little_is_computed_again() -> None:
    assert len(kernels(smoothed, 1).kernels) == 1


def test_what_is_cheap_is_computed_again() -> None:
    assert len(kernels(lambda x, w: convolved(jnp.maximum(x, 0), w), 64).kernels) == 1


def test_its_sums_are_made_where_it_is_made() -> None:
    found = kernels(smoothed_and_summed, 64).kernels
    assert len(found) == 3
    assert sum("exp(" in kernel.source for kernel in found) == 1


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [smoothed, smoothed_and_summed])
def test_values_and_gradients(fn: Any, backend: str) -> None:
    rng = np.random.default_rng(0)
    x, w = image(rng, 3, 7, 9, 4), numbers(rng, 3, 3, 4, 8)

    def both(x: Any, w: Any) -> Any:
        made, back = jax.vjp(fn, x, w)
        return made, back(jax.tree.map(jnp.cos, made))

    free = {"loops": {"graph_launch_us": 0}, "target": {"memory_rate": 1e9}}
    with planned_with(**free), jax.default_matmul_precision("highest"):
        found = j2t.fuse(both, backend=backend, strict=True, contractions="triton")(x, w)
        wanted = jax.jit(both)(x, w)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(np.abs(other).max()))
