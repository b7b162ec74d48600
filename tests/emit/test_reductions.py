"""Places of extremes in loops: each lane goes through its own places in order, and lanes meet once, at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.policies import moved
from tests.rules.test_reductions import compiled

RNG = np.random.default_rng(5)


def special() -> tuple[np.ndarray, np.ndarray]:
    """Rows of one number only, of equal ones, of infinities, and with numbers that are none in some places."""
    x = RNG.integers(-4, 4, 40).astype(np.float32)
    y = RNG.integers(-4, 4, 700).astype(np.float32)
    x[:4] = np.inf, -np.inf, np.nan, 0.0
    y[[650, 66, 130, 677]] = np.inf, np.nan, np.nan, -np.inf
    return x, y


def first(how: str, with_nan: bool) -> tuple[Callable[..., Any], tuple[np.ndarray, np.ndarray]]:
    x, y = special()
    y = y if with_nan else np.nan_to_num(y, nan=1.0, posinf=np.inf, neginf=-np.inf)
    return lambda x, y: getattr(jnp, how)(x[:, None] * y[None] + x[:, None], axis=1), (x, y)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("with_nan", [False, True])
@pytest.mark.parametrize("how", ["argmin", "argmax"])
def test_the_first_of_equal_ones(how: str, with_nan: bool, backend: str) -> None:
    fn, args = first(how, with_nan)
    found = j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args)
    np.testing.assert_array_equal(found, jax.jit(fn)(*args), strict=True)


def test_lanes_compare_places_at_the_end_only() -> None:
    fn, args = first("argmin", True)
    source = j2t.transpile(fn, *args, contractions="triton").source
    assert source.count("= _next_min(") == 1 and source.count("_first_min)[1]") == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 0.0])
@pytest.mark.parametrize("how", ["argmin", "argmax"])
def test_of_one_number_everywhere(how: str, value: float) -> None:
    x, y = np.zeros(40, np.float32), np.full(700, value, np.float32)
    found = j2t.fuse(
        lambda x, y: getattr(jnp, how)(x[:, None] + y[None], axis=1),
        backend="interpret",
        contractions="triton",
        strict=True,
    )(x, y)
    np.testing.assert_array_equal(found, np.zeros(40, np.int32))


@pytest.mark.parametrize("order", ["together", "one_after_the_other"])
def test_several_places_in_a_step(order: str) -> None:
    """A dimension that two are joined to: its places follow each other in one step, or are far apart."""

    def fn(x: Any, y: Any) -> Any:
        both = jnp.stack([x, y], 2) if order == "together" else jnp.stack([x, y], 1)
        return jnp.argmin(both.reshape(len(x), -1), axis=1)

    x, y = (RNG.integers(0, 90, (6, 150)).astype(np.float32) for _ in range(2))
    made = compiled(fn, x, y, policy=moved(blocks={"resident": 64}))
    (found,) = made.run("interpret", False, x, y)
    np.testing.assert_array_equal(found, fn(x, y))


SPECIAL = {
    "numbers": RNG.normal(size=(40, 30)),
    "zeros": np.full((40, 30), -0.0),
    "infinite": np.where(RNG.random((40, 30)) > 0.9, -np.inf, 1.0),
    "none": np.where(RNG.random((40, 30)) > 0.9, -np.nan, -1.0),
    "small": RNG.normal(size=(40, 30)) * 1e-30,
}


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int32])
@pytest.mark.parametrize("name", SPECIAL)
def test_the_largest_without_its_sign(name: str, dtype: Any, backend: str) -> None:
    values = np.nan_to_num(SPECIAL[name], neginf=-9) * 5 if dtype is np.int32 else SPECIAL[name]
    x = jnp.asarray(values, dtype)

    def largest(x: Any) -> Any:
        return jnp.max(jnp.abs(x)), jnp.abs(x).sum()

    found = j2t.fuse(largest, backend=backend, strict=True)(x)
    wanted = jax.jit(largest)(x)
    np.testing.assert_array_equal(*(np.asarray(each[0], np.float64) for each in (found, wanted)))


def test_bits_are_compared_where_no_sign_is_set_and_a_warp_meets() -> None:
    def sources(fn: Callable[..., Any], *shape: int) -> str:
        return j2t.transpile(fn, jax.ShapeDtypeStruct(shape, np.float32), for_target="sm_90").source

    by_bits = ").to(tl.float32, bitcast=True)"
    assert by_bits in sources(lambda x: jnp.max(jnp.abs(x)), 30, 40)
    assert by_bits in sources(lambda x: jnp.max(jnp.where(x > 1, jnp.abs(x), 0.0)), 700)
    assert by_bits not in sources(lambda x: jnp.max(jnp.where(x > 1, x, 0.0)), 700)
    assert by_bits not in sources(lambda x: jnp.min(jnp.abs(x)), 700)
    assert by_bits not in sources(lambda x: jnp.max(jnp.abs(x), 1), 700, 700)


def test_each_warp_finds_the_largest_of_a_square_in_a_loop() -> None:
    def settled(x: Any) -> Any:
        def step(state: Any) -> Any:
            before, _ = state
            after = 0.25 * (before + jnp.roll(before, 1, 0) + jnp.roll(before, 1, 1)) + x
            return after, jnp.max(jnp.abs(after - before))

        return lax.while_loop(lambda state: state[1] > 1e-3, step, (x, jnp.inf))

    x = np.random.default_rng().random((50, 50)).astype(np.float32)
    (kernel,) = j2t.transpile(settled, x, for_target="sm_90").kernels
    assert kernel.num_warps > 1
    assert kernel.source.count("_in_each_warp(") == 2, "the function, and where it is called"
    for backend in ("interpret", "machine"):
        found = j2t.fuse(settled, backend=backend, strict=True)(x)
        for one, other in zip(found, jax.jit(settled)(x)):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    once = j2t.transpile(lambda x: jnp.max(jnp.abs(x)), x, for_target="sm_90").source
    assert "bitcast" in once and "_in_each_warp" not in once


def test_all_of_a_tile_is_combined_at_once() -> None:
    source = j2t.transpile(jnp.sum, jax.ShapeDtypeStruct((3, 5, 7), np.float32), for_target="sm_90").source
    assert source.count("tl.reduce(") == 1
    rows = j2t.transpile(lambda x: jnp.max(jnp.sin(x), 1), jax.ShapeDtypeStruct((9, 700), np.float32)).source
    assert rows.count("tl.reduce(") == 1 and ", None, " not in rows
