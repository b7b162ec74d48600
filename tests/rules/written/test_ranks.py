"""Sorts and running sums of short axes against JAX's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.rules.written import ranks
from tests.normalize.passing import SPECIAL, same_bits

RUNNING: dict[str, Callable[..., Any]] = {
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}
SORTS: dict[str, Callable[..., Any]] = {
    "sort": jnp.sort,
    "argsort": lambda x: jnp.argsort(x, stable=True),
    "descending": lambda x: jnp.argsort(x, descending=True),
    "two": lambda x: lax.sort((x, -x, jnp.arange(x.size).reshape(x.shape) % 2 == 0), num_keys=1),
    "two_keys": lambda x: lax.sort((jnp.round(x), x), num_keys=2),
}
SIZES = (1, 2, 3, 5, 16)


def some(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(mine: Any, theirs: Any, tolerance: float) -> None:
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RUNNING)
def test_running(name: str, size: int) -> None:
    x = some(3, size, 2)
    for axis, reverse in itertools.product(range(3), (False, True)):
        mine = ranks.TABLE[name](jnp.asarray(x), axis=axis, reverse=reverse)
        close(mine, RUNNING[name](x, axis, reverse), 1e-5)


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float64, np.int32, np.uint8])
def test_running_dtypes(name: str, dtype: Any) -> None:
    if name == "cumlogsumexp" and np.issubdtype(dtype, np.integer):
        return
    with jax.enable_x64(True):
        x = (some(6) * 3).astype(dtype)
        mine = ranks.TABLE[name](jnp.asarray(x), axis=0, reverse=False)
        close(mine, RUNNING[name](x), 3e-2 if dtype is jnp.bfloat16 else 1e-10)


def test_running_specials() -> None:
    for name, x in itertools.product(RUNNING, (SPECIAL, SPECIAL[:6], np.full(3, -np.inf, np.float32))):
        close(ranks.TABLE[name](jnp.asarray(x), axis=0, reverse=False), RUNNING[name](x), 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float64, np.int32, np.uint8, np.bool_])
def test_sorts_keep_every_bit(dtype: Any) -> None:
    numbers = np.concatenate([SPECIAL, -SPECIAL, SPECIAL[::3]])
    with jax.enable_x64(True), np.errstate(all="ignore"):
        x = numbers.astype(dtype)
        places = np.arange(len(x), dtype=np.int32)
        for keys in (1, 2):
            params = dict(dimension=0, is_stable=True, num_keys=keys)
            mine = ranks.TABLE["sort"](jnp.asarray(x), jnp.asarray(places), **params)
            for got, want in zip(mine, lax.sort_p.bind(x, places, **params), strict=True):
                assert same_bits(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*SORTS, *RUNNING])
def test_inside_of_a_loop(name: str, size: int) -> None:
    function = {**SORTS, **{name: lambda x, f=f: f(x, x.ndim - 1) for name, f in RUNNING.items()}}[name]

    def loop(start: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            outs = jax.tree.leaves(function(carry + x))
            return 0.5 * carry + 0.1 * jnp.broadcast_to(outs[0], carry.shape).astype(carry.dtype), outs

        return lax.scan(step, start, xs)

    for shape in ((size,), (3, size)):
        args = some(*shape), some(4, *shape)
        program = j2t.transpile(loop, *args)
        assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
        close(program(*args), jax.jit(loop)(*args), 1e-5)


@pytest.mark.parametrize("name", [*SORTS, *RUNNING])
def test_derivatives(name: str) -> None:
    function = {**SORTS, **RUNNING}[name]

    def loop(start: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            out = jax.tree.leaves(function(carry + x))[0]
            return 0.5 * carry + 0.1 * jnp.broadcast_to(out, carry.shape).astype(carry.dtype), None

        return (lax.scan(step, start, xs)[0] ** 2).sum()

    mine = j2t.fuse(loop, backend="interpret")
    args = some(5), some(3, 5)
    close(*(jax.jit(jax.grad(fn, (0, 1)))(*args) for fn in (mine, loop)), 1e-4)
    close(jax.jvp(mine, args, args), jax.jvp(loop, args, args), 1e-4)
