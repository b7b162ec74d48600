"""Long loops whose carried values are affine in those of the step before, in stretches side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton import policy
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.loops import test_sweep as sweeps
from tests.normalize.passing import traced

INF, NAN = sweeps.INF, sweeps.NAN
SHORT = dataclasses.replace(policy.COMMON, long_loop=32)  # so that few steps are many
FUNCTIONS = [sweeps.linear, sweeps.read_before, sweeps.reset, sweeps.largest, sweeps.smallest_before, *sweeps.COUPLED]


@pytest.fixture(autouse=True)
def short_loops_are_long() -> Iterator[None]:
    with mock.patch.object(policy, "COMMON", SHORT):
        yield


def shifted(c: Any, a: Any, b: Any) -> Any:
    """One value is what another one was made of a step before; one is only summed."""

    def step(carry: Any, x: Any) -> Any:
        old, c, total = carry
        return (jnp.sin(x[1]), x[0] * c + old, total + x[1] * old), (c, old)

    return lax.scan(step, (c, c, c), (a, b))


def shifted_backwards(c: Any, a: Any, b: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        old, c = carry
        return (x[1], x[0] * c - old), c * old

    return lax.scan(step, (c, c), (a, b), reverse=True)


def of_numbers(c: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda c, x: ((0.5 * c[1] + x.sum(), c[0] - 0.25 * c[1]), c[0]), (0.0, 1.0), a * b)


def compared(function: Callable[..., Any], *args: Any, tolerance: float = 2e-5, backend: str = "interpret") -> None:
    assert str(normalize(traced(function, *args))).count("scan[") >= 3
    expected, found = jax.jit(function)(*args), j2t.fuse(function, backend=backend, strict=True)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(ours), np.asarray(theirs)
        scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
        np.testing.assert_allclose(one, other, tolerance, tolerance * scale)


@pytest.mark.parametrize("function", [*FUNCTIONS, shifted, shifted_backwards, of_numbers], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("lanes", "steps"), [((), 48), ((3,), 48), ((2, 3), 60), ((130,), 256)], ids=str)
def test_values_are_those_of_steps(function: Callable[..., Any], lanes: tuple[int, ...], steps: int) -> None:
    compared(function, *sweeps.inputs(lanes, steps))


@pytest.mark.parametrize(
    "function", [sweeps.linear, sweeps.largest, sweeps.second_order, shifted], ids=lambda f: f.__name__
)
def test_on_the_machine(function: Callable[..., Any]) -> None:
    compared(function, *sweeps.inputs((5,), 48), backend="machine")


@pytest.mark.parametrize(
    "function",
    [sweeps.linear, sweeps.reset, sweeps.largest, shifted, shifted_backwards, sweeps.second_order],
    ids=lambda f: f.__name__,
)
def test_gradients(function: Callable[..., Any]) -> None:
    def gradient(*args: Any) -> Any:
        return jax.grad(lambda *args: sum(jnp.sin(x).sum() for x in jax.tree.leaves(function(*args))), (0, 1, 2))(*args)

    compared(gradient, *sweeps.inputs())


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, INF), (0, NAN), (1, INF), (1, NAN), (1, 1e30), (1, 0), (2, INF), (2, NAN), (2, 3e38)],
    ids=str,
)
@pytest.mark.parametrize(
    "function",
    [sweeps.linear, sweeps.reset, sweeps.largest, sweeps.smallest_before, sweeps.second_order, sweeps.best_of_two],
    ids=lambda f: f.__name__,
)
def test_what_is_no_number_is_where_steps_have_it(function: Callable[..., Any], place: int, value: Any) -> None:
    args = sweeps.inputs()
    args[place][5 if place else 1, ...] = value
    compared(function, *args)


@pytest.mark.parametrize(
    "coefficients",
    [
        np.resize(np.float32([1e30, 1e-30]), sweeps.STEPS),
        np.resize(np.float32([1e-30, 1e30]), sweeps.STEPS),
        np.where(np.arange(sweeps.STEPS) < sweeps.STEPS // 2, np.float32(1e-3), np.float32(1e3)),
        np.resize(np.float32([2, 2, 2, 0]), sweeps.STEPS),
        np.full(sweeps.STEPS, 9, np.float32),
    ],
    ids=["large first", "small first", "small, then large", "zeros", "growing"],
)
@pytest.mark.parametrize("beside", [0, 1])
def test_products_of_coefficients_may_not_fit(coefficients: np.ndarray, beside: float) -> None:
    c, _, b = sweeps.inputs()
    compared(sweeps.linear, c, np.repeat(coefficients[:, None], sweeps.LANES, 1), b * np.float32(beside))


@pytest.mark.parametrize("size", [1.0, 30.0, 1e19, 1e-30])
def test_products_of_matrices_may_not_fit(size: float) -> None:
    c, a, b = sweeps.inputs()
    a = np.where(np.arange(sweeps.STEPS) % 4 < 3, np.float32(size), np.float32(1 / size))[:, None] + 0 * a
    compared(sweeps.second_order, c, a, b, tolerance=2e-4)
    compared(sweeps.second_order, 0 * c, a, 0 * b)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_whole_numbers_are_exact(dtype: Any) -> None:
    args = [np.random.default_rng(0).integers(0, 9, shape).astype(dtype) for shape in ((3,), (48, 3), (48, 3))]
    found = j2t.fuse(sweeps.linear, backend="interpret", strict=True)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(sweeps.linear)(*args)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_steps_that_make_no_whole_number_of_stretches_are_left() -> None:
    assert "scan[" in str(program := normalize(traced(sweeps.linear, *sweeps.inputs((3,), 47)))) or "scanned" in str(
        program
    )
    found = j2t.fuse(sweeps.linear, backend="interpret", strict=True)(*sweeps.inputs((3,), 47))
    assert jax.tree.leaves(found)[1].shape == (47, 3)


def test_an_exact_order_is_that_of_the_steps() -> None:
    args = sweeps.inputs()
    found = j2t.fuse(sweeps.linear, backend="interpret", strict=True, exact_order=True)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(sweeps.linear)(*args)), strict=True):
        np.testing.assert_allclose(one, other, 1e-6, 1e-6)


def test_the_device_is_shared() -> None:
    floats = jax.ShapeDtypeStruct((32_768, 4), np.float32)
    with mock.patch.object(policy, "COMMON", dataclasses.replace(SHORT, long_loop=1 << 13)):
        made = j2t.transpile(sweeps.linear, jax.ShapeDtypeStruct((4,), np.float32), floats, floats)
    first, between, last = made.kernels
    assert len(made.leftovers) == 0
    assert min(first.grid[0], last.grid[0]) >= 16 and between.grid[0] == 1
