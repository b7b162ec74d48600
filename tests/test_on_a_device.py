"""All named programs and their gradients on a device, against JAX on the CPU; those that multiply, and windows too."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.device.cases import Case, small_cases
from bench.device.compared import on_the_cpu
from jaxpr2triton.launch.call.devices import target_for
from jaxpr2triton.launch.call.primitive import launch_kernel
from tests.launch.handmade import shift_kernel

pytestmark = pytest.mark.gpu

CASES = [case for case in small_cases() if case.allowed is not None]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family} {case.name} {case.kind}")
def test_values(case: Case) -> None:
    error, allowed = on_the_cpu(case)
    assert allowed is not None and error <= allowed


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float64])
def test_a_flag_is_cleared_before_each_launch(dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        some = jax.jit(j2t.fuse(lambda x: jax.numpy.any(x > 1).astype(dtype), backend="triton"))
        for largest in (0, 2, 0, 2, 2, 0):
            x = np.zeros(70_007, np.float32)
            x[70_000] = largest
            assert np.asarray(some(x)) == (largest > 1)


@pytest.mark.parametrize("a_processor", [1, 2])
def test_programs_meet(a_processor: int) -> None:
    """As many as run at once, in every step of several calls: each time the counter is zero before."""
    programs, steps = a_processor * target_for("cuda").processors, 50
    kernel = shift_kernel(programs, steps)
    region = jax.make_jaxpr(lambda x: [x])(jax.ShapeDtypeStruct(kernel.inputs[0].shape, np.float32))
    shifted = jax.jit(lambda x: launch_kernel(kernel, region, [x], "device", strict=True)[0])
    for seed in range(3):
        x = np.random.default_rng(seed).integers(-1, 2, kernel.inputs[0].shape).astype(np.float32)
        want = x.astype(np.float64)
        for _ in range(steps):
            want = want + np.roll(want, -1)
        np.testing.assert_allclose(np.asarray(shifted(x)), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
