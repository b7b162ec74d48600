"""Costly values of elementwise kernels are made once for all elements along which they do not vary."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.plan.partition import excess
from jaxpr2triton.plan.schedule import invariant
from tests.policies import planned_with


def rotated(x: Any, positions: Any) -> Any:
    """x [batch, time, head, feature]: pairs of features turned by angles that are the same for all heads."""
    d = x.shape[-1]
    frequency = 1.0 / (10000.0 ** (jnp.arange(0, d, 2, dtype=jnp.float32) / d))
    angle = positions[..., None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle)[:, :, None, :], jnp.sin(angle)[:, :, None, :]
    x1, x2 = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).astype(x.dtype)


def heads_first(x: Any, positions: Any) -> Any:
    return rotated(x.transpose(0, 2, 1, 3), positions).transpose(0, 2, 1, 3)


def scaled_rows(x: Any, a: Any) -> Any:
    return x * jnp.exp(jnp.sin(a) * jax.scipy.special.gammaln(a))[:, None]


def scaled_columns(x: Any, a: Any) -> Any:
    return x * jnp.exp(jnp.sin(a) * jax.scipy.special.gammaln(a))


def shaped(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


LARGE = {
    rotated: (shaped(4, 2048, 32, 128, dtype=jnp.bfloat16), shaped(4, 2048, dtype=jnp.int32)),
    heads_first: (shaped(4, 32, 2048, 128, dtype=jnp.bfloat16), shaped(4, 2048, dtype=jnp.int32)),
    scaled_rows: (shaped(16384, 4096, dtype=jnp.bfloat16), shaped(16384)),
    scaled_columns: (shaped(16384, 4096, dtype=jnp.bfloat16), shaped(4096)),
}


@pytest.mark.parametrize("fn", LARGE)
def test_a_tile_has_a_dimension_for_what_they_do_not_vary_along(fn: Any) -> None:
    args = LARGE[fn]
    (kernel,) = j2t.transpile(fn, *args, for_target="sm_90").kernels
    blocks = {axis.name: axis.block for axis in kernel.axes if axis.name in "nij"}
    assert (blocks["i"], blocks["j"]) == (32, 32) and kernel.num_warps == 2  # 16 elements of a thread
    costly = next(line for line in kernel.source.splitlines() if "tl.sin(" in line)
    assert "None" not in costly  # in one dimension
    assert kernel.bytes_read + kernel.bytes_written == sum(
        each.size * each.dtype.itemsize for each in (*args, jax.eval_shape(fn, *args))
    )


def test_few_rows_leave_room_for_more_of_each() -> None:
    args = shaped(4, 2048, 8, 128, dtype=jnp.bfloat16), shaped(4, 2048, dtype=jnp.int32)
    (kernel,) = j2t.transpile(rotated, *args, for_target="sm_90").kernels
    assert [axis.block for axis in kernel.axes if axis.name in "ij"] == [8, 64]


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (rotated, (shaped(2, 16, 32, 128), shaped(2, 16, dtype=jnp.int32))),  # soon done
        (lambda x, a: x * (a + 1)[:, None], (shaped(16384, 4096), shaped(16384))),  # cheap
        (lambda x, a: x * jnp.sin(a), (shaped(1 << 26), shaped())),  # one number of the whole kernel
        (lambda x, a: jnp.sin(x) * a[:, None], (shaped(16384, 4096), shaped(16384))),  # varies along all
    ],
    ids=["little", "cheap", "scalar", "of each element"],
)
def test_others_have_one_axis(fn: Any, args: Any) -> None:
    (kernel,) = j2t.transpile(fn, *args, for_target="sm_90").kernels
    assert "i" in [axis.name for axis in kernel.axes] and "j" not in [axis.name for axis in kernel.axes]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize(
    ("fn", "shape", "other"),
    [
        (rotated, (1, 3, 40, 72), (1, 3)),
        (heads_first, (1, 5, 3, 66), (1, 3)),
        (scaled_rows, (37, 50), (37,)),
        (scaled_columns, (37, 50), (50,)),
    ],
)
def test_values_and_gradients(fn: Any, shape: Any, other: Any, backend: str) -> None:
    """At sizes that are no multiples of the blocks, as if a launch took no time; for which nothing else is cut."""
    cheap = mock.patch.object(invariant, "_moved", lambda *_: 0.0)
    uncut = mock.patch.object(excess, "computed_again", lambda *_: [])
    with planned_with(loops={"graph_launch_us": 0.0}), cheap, uncut:
        values_and_gradients(fn, shape, other, backend)


def values_and_gradients(fn: Any, shape: Any, other: Any, backend: str) -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    ct = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    ints = fn in (rotated, heads_first)
    a = jnp.asarray(rng.integers(0, 99, other)) if ints else jnp.asarray(rng.uniform(0.5, 2, other), jnp.float32)
    fused = j2t.fuse(fn, backend=backend)
    (kernel,) = j2t.transpile(fn, x, a).kernels
    assert "j" in [axis.name for axis in kernel.axes]
    np.testing.assert_allclose(fused(x, a), fn(x, a), rtol=1e-4, atol=1e-4)

    def pulled(f: Any) -> Any:
        return jax.grad(lambda *args: (f(*args) * ct).sum(), (0,) if ints else (0, 1))

    for found in (pulled(fused), j2t.fuse(pulled(fn), backend=backend)):
        for one, two in zip(found(x, a), pulled(fn)(x, a), strict=True):
            np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-3)
