"""Loops that leave out the steps in which nothing is combined, because comparisons say where there is something."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(3)
SQUARE = jnp.asarray(RNG.standard_normal((300, 300)), jnp.float32)
ROWS, COLUMNS = (jnp.asarray(RNG.standard_normal(size), jnp.float32) for size in (41, 700))
LENGTHS = jnp.asarray([0, 700, 1, -3, 377, *range(36)], jnp.int32)


def pairs(x: Any, y: Any) -> Any:
    return jnp.sin(x[:, None] + y[None])


def place(x: Any) -> Any:
    return lax.broadcasted_iota(jnp.int32, x.shape, 1)


def chosen(condition: Callable[[Any, Any], Any], otherwise: float = 0, how: str = "sum") -> Callable[..., Any]:
    """What is made of all pairs whose place and whose row's length are so."""

    def of_pairs(x: Any, y: Any, n: Any) -> Any:
        made = pairs(x, y)
        return getattr(jnp.where(condition(place(made), n[:, None]), made, otherwise), how)(1)

    return of_pairs


def up_to(x: Any, y: Any, n: Any) -> Any:
    return chosen(lambda k, n: k < n)(x, y, n)


def not_behind(x: Any, y: Any, n: Any) -> Any:
    made = pairs(x, y)
    return jnp.where(place(made) > n[:, None], 0, made).sum(1)


def two_sums(x: Any, y: Any, n: Any) -> Any:
    return up_to(x, y, n), chosen(lambda k, n: k >= n)(x, y, n)


def folded(x: Any, y: Any, n: Any) -> Any:
    made = pairs(x, y).reshape(len(x), 7, 100)
    return jnp.where(jnp.arange(7)[None, :, None] == n[:, None, None], made, 0).sum((1, 2))


def infinite_elsewhere(x: Any, y: Any, n: Any) -> Any:
    made = 1 / jnp.maximum(x[:, None] + y[None], 0)
    return jnp.where((place(made) == n[:, None]) & (made < 9), made, 0).sum(1)


def to_the_diagonal(x: Any, y: Any, n: Any) -> Any:
    made = pairs(x, y)
    return jnp.where(place(made) <= lax.broadcasted_iota(jnp.int32, made.shape, 0) * 9, made, 0).sum(1)


def a_triangle(x: Any, y: Any, n: Any) -> Any:
    return jnp.tril(pairs(x, y), 3).sum(1)


USUAL = (ROWS, COLUMNS, LENGTHS)
FAR = jnp.asarray([2**31 - 1, -(2**31), *range(39)], jnp.int32)
SHORT = jnp.asarray([127, -128, *range(39)], jnp.int8)
MASKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "up to": (up_to, USUAL),
    "from": (chosen(lambda k, n: n <= k), USUAL),
    "behind": (chosen(lambda k, n: k > n), USUAL),
    "denied": (not_behind, USUAL),
    "not": (chosen(lambda k, n: ~(k > n)), USUAL),
    "one": (chosen(lambda k, n: k == n), USUAL),
    "all but one": (chosen(lambda k, n: k != n), USUAL),
    "either": (chosen(lambda k, n: (k < n) | (k > 600)), USUAL),
    "neither": (chosen(lambda k, n: ~((k < n) | (k > 600))), USUAL),
    "within": (chosen(lambda k, n: (n - 30 <= k) & (k < n + 100)), USUAL),
    "far away": (chosen(lambda k, n: k <= n), (ROWS, COLUMNS, FAR)),
    "behind what is far away": (chosen(lambda k, n: k > n), (ROWS, COLUMNS, FAR)),
    "one length": (chosen(lambda k, n: k < n), (ROWS, COLUMNS, jnp.full(1, 290))),
    "bytes": (chosen(lambda k, n: k < n), (ROWS, COLUMNS, SHORT)),
    "places in bytes": (chosen(lambda k, n: k.astype(np.int8) < n), (ROWS, COLUMNS[:128], SHORT)),
    "without sign": (chosen(lambda k, n: k.astype(np.uint32) < n), (ROWS, COLUMNS, LENGTHS.astype(np.uint32))),
    "greatest": (chosen(lambda k, n: k < n, -np.inf, "max"), USUAL),
    "greatest or nothing": (chosen(lambda k, n: k < n, 0, "max"), USUAL),
    "place of greatest": (chosen(lambda k, n: k < n, -np.inf, "argmax"), USUAL),
    "product": (chosen(lambda k, n: k < n, 1, "prod"), USUAL),
    "two sums": (two_sums, USUAL),
    "backwards": (chosen(lambda k, n: 699 - k < n), USUAL),
    "blocks": (chosen(lambda k, n: k // 70 == n), USUAL),
    "folded": (folded, USUAL),
    "infinite elsewhere": (infinite_elsewhere, USUAL),
    "to the diagonal": (to_the_diagonal, USUAL),
    "a triangle": (a_triangle, USUAL),
}


def check(name: str, backend: str) -> None:
    fn, args = MASKED[name]
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    found = jax.tree.leaves(j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", MASKED)
def test_values(name: str) -> None:
    check(name, "interpret")


@pytest.mark.parametrize("name", ["up to", "within", "far away", "folded", "a triangle", "places in bytes"])
def test_compiled(name: str) -> None:
    check(name, "machine")


def headers(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The loops of all kernels."""
    made = j2t.transpile(fn, *args, contractions="triton")
    lines = [line.strip() for kernel in made.kernels for line in kernel.source.splitlines()]
    return [line for line in lines if line.startswith("for ")]


@pytest.mark.parametrize(
    "name", ["up to", "denied", "not", "greatest", "product", "bytes", "one length", "to the diagonal", "a triangle"]
)
def test_ends_with_the_last_term(name: str) -> None:
    fn, args = MASKED[name]
    (loop,) = headers(fn, *args)
    assert "in range(0, k_last, " in loop


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_places_of_64_bits(backend: str) -> None:
    with jax.enable_x64(True):
        fn = chosen(lambda k, n: k.astype(np.int64) < n)
        args = ROWS, COLUMNS, LENGTHS.astype(np.int64) * 2**33 // 2**30
        assert any("k_last" in loop for loop in headers(fn, *args))
        found = j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args)
        np.testing.assert_allclose(found, jax.jit(fn)(*args), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["from", "behind", "backwards"])
def test_begins_with_the_first_term(name: str) -> None:
    fn, args = MASKED[name]
    (loop,) = headers(fn, *args)
    assert "in range(k_first // 32 * 32, 700, 32)" in loop


@pytest.mark.parametrize("name", ["within", "one", "folded", "neither", "infinite elsewhere"])
def test_knows_both_ends(name: str) -> None:
    fn, args = MASKED[name]
    (loop,) = headers(fn, *args)
    assert "in range(k_first // 32 * 32, k_last, 32)" in loop


@pytest.mark.parametrize(
    "name", ["all but one", "either", "two sums", "greatest or nothing", "place of greatest", "without sign"]
)
def test_takes_all_steps(name: str) -> None:
    fn, args = MASKED[name]
    assert all("in range(0, 700, 32)" in loop for loop in headers(fn, *args))


def test_infinity_times_nothing_is_not_left_out() -> None:
    """`where(mask, x, 0) @ y` is no number where `y` is infinite."""

    def masked(x: Any, y: Any, n: Any) -> Any:
        return jnp.matmul(jnp.where(place(x) < n[:, None], x, 0), y, precision="highest")

    args = SQUARE, SQUARE.at[200, 3].set(jnp.inf), jnp.full(300, 100)
    found = j2t.fuse(masked, backend="interpret", contractions="triton", strict=True)(*args)
    assert np.isnan(found[:, 3]).all() and np.isfinite(np.delete(np.asarray(found), 3, axis=1)).all()
    assert not any("_last" in loop for loop in headers(masked, *args))


@pytest.mark.parametrize("sizes", [[300, 0, 0, 0], [0, 0, 0, 300], [100, 1, 0, 150], [0, 0, 0, 0], [75, 75, 75, 75]])
@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_rows_of_groups(sizes: list[int], backend: str) -> None:
    """Groups that are empty, rows in none, and a matrix that none of the rows of a program has."""
    w = jnp.asarray(RNG.standard_normal((4, 300, 40)), jnp.float32)
    sizes_of = jnp.asarray(sizes, jnp.int32)

    def loss(x: Any, w: Any) -> Any:
        return jnp.sin(lax.ragged_dot(x, w, sizes_of, precision="highest")).sum()

    step = jax.value_and_grad(loss, (0, 1))
    found = j2t.fuse(step, backend=backend, contractions="triton", strict=True)(SQUARE, w)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(step)(SQUARE, w)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3)


ORDERS = {  # of the dimensions: m is in groups, g says which, and k and j are summed, if not m
    "rows last": ("kem", "gkn"),
    "groups last": ("mk", "nkg"),
    "two sums": ("jmk", "kgjn"),
    "a sum along rows": ("kme", "nm"),
}


@pytest.mark.parametrize("order", ORDERS)
def test_dimensions_in_any_order(order: str) -> None:
    left, right = ORDERS[order]
    sizes = {"m": 90, "k": 21, "j": 2, "e": 3, "g": 5, "n": 18}
    summed = [name for name in left if name in right]
    contracted = [left.index(name) for name in summed], [right.index(name) for name in summed]
    groups = [right.index("g")] if "g" in right else []
    numbers = lax.RaggedDotDimensionNumbers((contracted, ([], [])), [left.index("m")], groups)
    one, other = (RNG.integers(-4, 5, [sizes[name] for name in each]).astype(np.float32) for each in (left, right))

    def fn(one: Any, other: Any, groups: Any) -> Any:
        return lax.ragged_dot_general(one, other, groups, numbers, precision="highest")

    args = one, other, np.asarray([20, 0, 31, 5, 12], np.int32)
    found = j2t.fuse(fn, backend="interpret", contractions="triton", strict=True)(*args)
    np.testing.assert_allclose(found, jax.jit(fn)(*args), atol=1e-3, strict=True)


def test_no_row_is_multiplied_with_a_matrix_that_is_nobodys() -> None:
    w = jnp.ones((8, 64, 16)).at[5].set(jnp.inf)
    sizes = jnp.asarray([64, 64, 64, 64, 44, 0, 0, 0], jnp.int32)
    multiplied = j2t.fuse(partial(lax.ragged_dot, precision="highest"), backend="interpret", contractions="triton")
    meant = np.broadcast_to(SQUARE[:, :64].sum(1, keepdims=True), (300, 16))
    np.testing.assert_allclose(multiplied(SQUARE[:, :64], w, sizes), meant, atol=1e-4)


def test_chunks_of_which_the_last_is_a_short_one_have_all_steps() -> None:
    def backwards(x: Any, ct: Any) -> Any:
        return jax.vjp(jax.nn.softmax, x)[1](ct)[0]

    shape = jax.ShapeDtypeStruct((64, 1_000_000), jnp.float32)
    kernels = j2t.transpile(backwards, shape, shape).kernels
    assert not any("_last" in kernel.source or "_first" in kernel.source for kernel in kernels)
