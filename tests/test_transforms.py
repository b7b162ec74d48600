"""A fused function under every transformation of JAX, compared with `jax.jit` in its place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.transforms import batches, calls, control, derivatives, effects, loops, surroundings

MODULES = (calls, derivatives, batches, control, loops, surroundings, effects)
CASES = tuple(case for module in MODULES for case in module.CASES)
# what cannot be asked of a program that calls back to Python
NOT_INTERPRETED = {surroundings.export, surroundings.export_with_gradient}
SPREAD = {case for case in CASES if {"_mesh", "make_mesh", "devices"} & set(case.__code__.co_names)}
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12, "complex128": 1e-12}


@pytest.mark.parametrize("backend", ["auto", "interpret", pytest.param("triton", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_like_jit(case: Callable[..., Any], backend: str) -> None:
    if backend == "interpret" and case in NOT_INTERPRETED:
        pytest.skip("JAX does not write callbacks to Python into a file")
    if case in SPREAD and jax.device_count() < 8:
        pytest.skip("needs eight devices")
    expected = under_jit(case)
    found = case(functools.partial(j2t.fuse, backend=backend))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for position, (one, other) in enumerate(zip(jax.tree.leaves(found), jax.tree.leaves(expected))):
        same(one, other, f"leaf {position}")


@functools.lru_cache(maxsize=4)  # for all backends
def under_jit(case: Callable[..., Any]) -> Any:
    with jax.default_device(jax.devices("cpu")[0] if jax.default_backend() != "cpu" else None):
        return case(jax.jit)


def same(found: Any, expected: Any, where: str) -> None:
    """Equal in dtype, shape and value, the last up to rounding."""
    assert type(found) is type(expected), where
    if not isinstance(expected, (jax.Array, np.ndarray)):
        assert found == expected, where
        return
    assert found.dtype == expected.dtype and found.shape == expected.shape, where
    tolerance = TOLERANCE.get(expected.dtype.name, 3e-5) if jnp.issubdtype(expected.dtype, jnp.inexact) else 0
    np.testing.assert_allclose(
        np.asarray(found, np.float64 if expected.dtype == jnp.bfloat16 else None),
        np.asarray(expected, np.float64 if expected.dtype == jnp.bfloat16 else None),
        rtol=tolerance,
        atol=tolerance,
        err_msg=where,
    )


def test_there_are_enough_cases() -> None:
    names = [case.__name__ for case in CASES]
    assert len(set(names)) == len(names) >= 80


def test_every_case_is_in_its_table() -> None:
    for module in MODULES:
        written = [
            value
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
            if not isinstance(value, type)
        ]
        assert set(written) == set(module.CASES), module.__name__
