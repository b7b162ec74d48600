"""All named programs and their gradients on a device, against JAX on the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.works import Work, works

pytestmark = pytest.mark.gpu

NARROW, WIDE, SINGLE = 3e-2, 1e-10, 2e-4  # of the largest value: the rounding of long sums adds up
SMALL = 1e-2  # gradients that are zero by rounding only are compared with this


@pytest.mark.parametrize("work", [work for work in works() if "chaotic" not in work.program.tags], ids=str)
def test_values(work: Work) -> None:
    # else a device rounds what it multiplies to ten bits
    with work.precision(), jax.default_matmul_precision("highest"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left over is no concern here
        args = work.arguments()
        on_cpu = jax.device_put(args, jax.devices("cpu")[0])
        expected = leaves(jax.jit(work.function())(*on_cpu))
        fused = jax.jit(work.function(lambda function: j2t.fuse(function, backend="triton")))
        found = leaves(fused(*jax.device_put(args, jax.devices()[0])))
    assert [each.shape for each in found] == [each.shape for each in expected]
    narrow = "low" in work.program.tags or any(each.dtype.itemsize == 2 for each in expected)
    tolerance = NARROW if narrow else WIDE if "x64" in work.program.tags else SINGLE
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
