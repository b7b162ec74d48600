"""Running sums and orders of rows, inside and outside of loops, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.rules.sweeps import TABLE
from jaxpr2triton.rules.written import sorts

FLOATS = tuple(np.dtype(name) for name in (np.float16, jnp.bfloat16, np.float32, np.float64))
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
BOOL = np.dtype(np.bool_)
RUNNING: dict[str, Callable[..., Any]] = {
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}
DIGITS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-14}
Fn = Callable[..., Any]


def some(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Values of every kind: some are alike, zeros have both signs, rows have a NaN, infinities or none of them."""
    rng = np.random.default_rng(sum(shape))
    dtype = np.dtype(dtype)
    if dtype == BOOL:
        return rng.random(shape) < 0.5
    if not jnp.issubdtype(dtype, jnp.floating):
        limits = np.iinfo(dtype)
        found = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        found.flat[::3], found.flat[1::4] = limits.max, limits.min
        return found
    found = np.round(rng.standard_normal(shape) * 2) / 2
    for place, value in ((3, -0.0), (5, np.inf), (11, np.nan), (17, -np.inf), (19, np.nan)):
        found.flat[place :: 4 * place + 3] = value
    return found.astype(dtype)


def compared(fn: Fn, *args: Any, kernels: int = 1, digits: float = 2e-6, left: tuple[str, ...] = ()) -> None:
    program = j2t.transpile(fn, *args)
    assert len(program.kernels) == kernels and tuple(each.primitive for each in program.leftovers) == left, program
    close(program(*args), jax.jit(fn)(*args), digits)


def close(mine: Any, theirs: Any, digits: float) -> None:
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        numbers = np.asarray(got, np.float64), np.asarray(want, np.float64)
        np.testing.assert_allclose(*numbers, rtol=digits * 16, atol=digits * 16)


def same(mine: Any, theirs: Any) -> None:
    """Bit for bit."""
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), (got, want)


def test_every_row_is_exercised() -> None:
    assert set(TABLE) == {*RUNNING, "places", "scanned"} and set(sorts.TABLE) == {"sort", "top_k"}


def all_running(x: Any, axis: int) -> list[Any]:
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    names = [name for name in RUNNING if floats or name != "cumlogsumexp"]
    return [RUNNING[name](x, axis, reverse) for name in names for reverse in (False, True)]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=str)
def test_running(dtype: np.dtype, backend: str) -> None:
    """16-bit floats are rounded once, where JAX rounds each sum: they are compared with sums of more digits."""
    with jax.enable_x64(True):
        x = some((6, 37), dtype)
        if dtype.itemsize == 2 and dtype in FLOATS:
            x = np.where(np.isfinite(x), x, x.dtype.type(1))
        mine = j2t.fuse(lambda x: all_running(x, 1), backend=backend)(x)
        wide = x.astype(np.float32) if dtype in FLOATS[:2] else x
        theirs = [each.astype(dtype) for each in jax.jit(lambda x: all_running(x, 1))(wide)]
        close(mine, theirs, DIGITS.get(str(dtype), 0))


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (64,), (3, 0), (0, 3), (3, 1), (2, 5, 33)], ids=str)
def test_sizes_and_axes(shape: tuple[int, ...]) -> None:
    x = np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
    for axis in range(len(shape)):
        program = j2t.transpile(lambda x, axis=axis: all_running(x * 2, axis), x)
        assert not program.leftovers and len(program.kernels) <= 1
        close(program(x), all_running(x * 2, axis), 1e-6)


def exponential(x: Any) -> Any:
    return jnp.exp(-0.01 * jnp.cumsum(x * x, axis=-1)) * x


@pytest.mark.parametrize("length", [250, 5000])
def test_what_is_around_is_in_the_same_kernels(length: int) -> None:
    x = np.cos(np.arange(2 * length, dtype=np.float32)).reshape(2, length)
    compared(exponential, x, kernels=1 if length < 4096 else 3, digits=1e-6)
    gradient = jax.grad(lambda x: exponential(x).sum())
    compared(gradient, x, kernels=1 if length < 4096 else 5, digits=1e-5)
    compared(jax.vmap(exponential, 1, 1), x[:, :9], digits=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", RUNNING)
def test_long(name: str, reverse: bool) -> None:
    x = some((4100,)) if name in ("cummax", "cummin") else np.cos(np.arange(4100, dtype=np.float32))
    compared(lambda x: RUNNING[name](x, 0, reverse) + x[0], x, kernels=3, digits=1e-5)
    columns = np.stack([x[:2050], x[2050:]], 1)
    compared(lambda x: RUNNING[name](x, 0, reverse), columns, kernels=3, digits=1e-5)


@pytest.mark.parametrize(
    ("fn", "kernels"),
    [
        (lambda x: jnp.cumsum(x)[::-1] * 2, 4),
        (lambda x: jnp.cumsum(x).sum(), 4),
        (lambda x: jnp.cumsum(x)[-1], 4),
        (lambda x: jnp.cumsum(jnp.cumsum(x)) * 1e-4, 5),
        (lambda x: jnp.cumsum(x)[None] + jnp.ones((2, 1)), 4),
    ],
)
def test_long_ones_read_otherwise(fn: Fn, kernels: int) -> None:
    compared(fn, np.cos(np.arange(4100, dtype=np.float32)), kernels=kernels, digits=1e-4)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.cumsum(x, 1)[:, ::-1],
        lambda x: jnp.cumsum(x, 1)[:, -1],
        lambda x: jnp.cumsum(x, 1)[:, 3:9] + jnp.cumsum(x, 1)[:, 2:8],
        lambda x: jnp.cumsum(jnp.cumsum(x, 0), 1),
        lambda x: jnp.cumsum(x.reshape(-1)).reshape(x.shape) + x,
        lambda x: jnp.cumsum(x, 1)[:5, :5] + jnp.cumsum(x, 1)[:5, :5].T,
        lambda x: x - jnp.cumsum(x - x.mean(1, keepdims=True), 1),
        lambda x: jnp.cumsum(x, 1).sum(0),
    ],
)
def test_read_at_other_places(fn: Fn) -> None:
    x = np.cos(np.arange(60, dtype=np.float32)).reshape(5, 12)
    program = j2t.transpile(fn, x)
    assert not program.leftovers
    close(program(x), fn(x), 1e-5)


def orders(x: Any, axis: int) -> list[Any]:
    places = lax.broadcasted_iota(np.int32, x.shape, axis)
    found = [*lax.sort((x, places), dimension=axis), jnp.argsort(x, axis=axis, descending=True)]
    found += lax.sort((x > x.dtype.type(0) if x.dtype != BOOL else ~x, x, places), dimension=axis, num_keys=2)
    return found if axis == 0 or x.dtype == BOOL else [*found, *lax.top_k(x, 5)]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, BOOL), ids=str)
def test_orders(dtype: np.dtype, backend: str) -> None:
    """Stable, with every NaN last and the zeros of both signs alike, bit for bit."""
    with jax.enable_x64(True):
        x = some((3, 37), dtype)
        mine = j2t.fuse(lambda x: [orders(x, 1), orders(x.T, 0)], backend=backend)(x)
        same(mine, jax.jit(lambda x: [orders(x, 1), orders(x.T, 0)])(x))


@pytest.mark.parametrize("k", [1, 2, 8, 9])
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, BOOL), ids=str)
def test_the_largest_few(dtype: np.dtype, k: int) -> None:
    """What is equal stays in its order, the least numbers too, and every NaN has its bits."""
    with jax.enable_x64(True):
        x = some((3, 37), dtype)
        x[1] = x[1, 0] if dtype == BOOL else -np.inf if dtype in FLOATS else np.iinfo(dtype).min
        x[2, ::2] = x[2, 1]
        mine = j2t.fuse(lambda x: [lax.top_k(x, k), lax.top_k(x.T, k, axis=0)], backend="interpret")(x)
        same(mine, jax.jit(lambda x: [lax.top_k(x, k), lax.top_k(x.T, k, axis=0)])(x))


def routed(logits: Any) -> Any:
    """The two experts of each row, their weights, and how many rows each expert has."""
    p = jax.nn.softmax(logits, -1)
    weights, experts = lax.top_k(p, 2)
    load = jax.nn.one_hot(experts, logits.shape[-1]).sum((0, 1))
    return weights / weights.sum(-1, keepdims=True), experts, load


def test_a_router_is_one_kernel_and_a_sum() -> None:
    found = j2t.transpile(routed, jax.ShapeDtypeStruct((16384, 64), np.float32), for_target="sm_90").kernels
    rows, *sums = found
    assert (len(rows.outputs), len(sums), rows.grid[0] >= 128) == (2, 2, True)
    assert rows.bytes_read == 16384 * 64 * 4 and "_places" not in rows.source
    assert sum(each.bytes_read for each in sums) < rows.bytes_read / 16  # they read the places, and choose none again


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_a_router_has_values_and_gradients(backend: str) -> None:
    x = np.random.default_rng(3).standard_normal((40, 16)).astype(np.float32)
    close(j2t.fuse(routed, backend=backend)(x), jax.jit(routed)(x), 1e-6)

    def pulled(f: Fn) -> Fn:
        return jax.grad(lambda x: (f(x)[0] * jnp.arange(80.0).reshape(40, 2)).sum())

    wanted = jax.jit(pulled(routed))(x)
    close(pulled(j2t.fuse(routed, backend=backend))(x), wanted, 1e-6)
    close(j2t.fuse(pulled(routed), backend=backend)(x), wanted, 1e-6)


def test_nans_with_a_sign() -> None:
    x = np.array([1, 2, 3, -1], np.float32)
    x[1:3] = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    compared(lambda x: (jnp.sort(x), lax.top_k(x, 4)), x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.median(x, 1),
        lambda x: jnp.quantile(x, np.array([0.1, 0.9], np.float32), axis=1),
        lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]),
        lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1], method="sort"),
        lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1], method="compare_all"),
        lambda x: jnp.unique(jnp.round(x[0]), size=4),
        lambda x: jnp.cumsum(jnp.sort(x, 1), 1),
        jax.vmap(lambda x: x[jnp.argsort(-x)][:3]),
        jax.grad(lambda x: (jnp.sort(x, 1) * jnp.arange(12.0)).sum()),
        lambda x: jax.jvp(jnp.sort, (x,), (x * 2,)),
    ],
)
def test_made_of_orders(fn: Fn) -> None:
    x = np.random.default_rng(0).standard_normal((4, 12)).astype(np.float32)
    program = j2t.transpile(fn, x)
    assert not program.leftovers
    close(program(x), jax.jit(fn)(x), 1e-5)


def test_a_long_row_stays_with_its_reason() -> None:
    (left,) = j2t.transpile(jnp.sort, np.zeros(2049, np.float32)).leftovers
    assert left.why == "a row of 2049 is longer than the 2048 elements that one program sorts"


def in_bodies(fn: Fn) -> tuple[Fn, Fn]:
    def scanned(start: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            found = fn(carry + x)
            return 0.5 * carry + 0.1 * found, found

        return lax.scan(step, start, xs)

    def until(start: Any, xs: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 0.5 * fn(c[1] + xs[0])), (0, start))

    return scanned, until


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [jnp.cumsum, jnp.sort, lambda x: lax.cummax(x, reverse=True)])
def test_in_bodies(fn: Fn, backend: str) -> None:
    start, xs = (np.cos(np.arange(n, dtype=np.float32)) for n in (40, 120))
    for loop in in_bodies(fn):
        program = j2t.transpile(loop, start, xs.reshape(3, 40))
        assert (len(program.kernels), program.leftovers) == (1, ())
        close(j2t.fuse(loop, backend=backend)(start, xs.reshape(3, 40)), loop(start, xs.reshape(3, 40)), 1e-5)


def test_what_a_step_cannot_hold() -> None:
    start, xs = np.zeros(4097, np.float32), np.zeros((3, 4097), np.float32)
    (left,) = j2t.transpile(in_bodies(jnp.cumsum)[0], start, xs).leftovers
    why = "an axis of 4097 is longer than the 4096 elements that a step of a loop combines one by one"
    assert left.why.endswith(why)


def test_sweeps_are_lanes() -> None:
    x = np.zeros((8, 40), np.float32)
    for role in ("loop", "unroll"):
        with pytest.raises(j2t.UserError, match="what is combined along it one by one is lanes of one tile"):
            j2t.transpile(lambda x: jnp.cumsum(x, 1), x, roles={"col": role})
