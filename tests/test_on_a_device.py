"""All named programs and their gradients on a device, against JAX on the CPU; those that multiply, and windows too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests import contraction_programs, window_programs
from tests.contraction_programs import Contraction
from tests.test_contractions import widened
from tests.test_windows import value_and_gradients
from tests.window_programs import WindowProgram
from tests.works import Work, works

pytestmark = pytest.mark.gpu

NARROW, WIDE, SINGLE = 3e-2, 1e-10, 2e-4  # of the largest value: the rounding of long sums adds up
SMALL = 1e-2  # gradients that are zero by rounding only are compared with this


@pytest.mark.parametrize("work", [work for work in works() if "chaotic" not in work.program.tags], ids=str)
def test_values(work: Work) -> None:
    tolerance = NARROW if "low" in work.program.tags else WIDE if "x64" in work.program.tags else SINGLE
    with work.precision():
        compared(work.function, work.arguments(), tolerance)


@pytest.mark.parametrize("program", contraction_programs.PROGRAMS, ids=lambda program: program.name)
def test_contractions(program: Contraction) -> None:
    args = program.args()
    compared(lambda wrap: wrap(program.whole()), args, max(SINGLE, program.tolerance), jax.tree.map(widened, args))


@pytest.mark.parametrize("program", window_programs.PROGRAMS, ids=lambda program: program.name)
def test_windows(program: WindowProgram) -> None:
    args = program.args(np.random.default_rng(0))
    compared(lambda wrap: wrap(value_and_gradients(program)), args, SINGLE)


def compared(
    function: Callable[[Callable[..., Any]], Callable[..., Any]], args: Any, tolerance: float, on_cpu: Any = None
) -> None:
    """On the device as JAX gives it on the CPU; `function` puts something around what is to be a kernel."""
    # else a device rounds what it multiplies to ten bits
    with jax.default_matmul_precision("highest"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left over is no concern here
        on_cpu = jax.device_put(args if on_cpu is None else on_cpu, jax.devices("cpu")[0])
        expected = leaves(jax.jit(function(lambda fn: fn))(*on_cpu))
        fused = jax.jit(function(lambda fn: j2t.fuse(fn, backend="triton", contractions="triton")))
        found = leaves(fused(*jax.device_put(args, jax.devices()[0])))
    assert [each.shape for each in found] == [each.shape for each in expected]
    if any(each.dtype.itemsize == 2 for each in (*jax.tree.leaves(args), *expected)):
        tolerance = max(tolerance, NARROW)
    for position, (one, other) in enumerate(zip(found, expected)):
        one, other = (np.asarray(each, np.float64 if each.dtype.kind not in "c" else None) for each in (one, other))
        scale = max(float(np.abs(other).max(initial=0.0, where=np.isfinite(other))), SMALL)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale, err_msg=f"leaf {position}")


def leaves(tree: Any) -> list[np.ndarray]:
    """Keys as the numbers that they are."""
    return [
        np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(tree)
        if leaf.dtype != jax.dtypes.float0
    ]


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float64])
def test_a_flag_is_cleared_before_each_launch(dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        some = jax.jit(j2t.fuse(lambda x: jax.numpy.any(x > 1).astype(dtype), backend="triton"))
        for largest in (0, 2, 0, 2, 2, 0):
            x = np.zeros(70_007, np.float32)
            x[70_000] = largest
            assert np.asarray(some(x)) == (largest > 1)
