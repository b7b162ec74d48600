"""Programs that compute the rounding errors of their own sums and products find those that they find under `jit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse

Function = Callable[..., Any]
Pair = tuple[jax.Array, jax.Array]


def two_sum(a: jax.Array, b: jax.Array) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fast_two_sum(a: jax.Array, b: jax.Array) -> Pair:
    total = a + b
    return total, b - (total - a)


def halves(a: jax.Array) -> Pair:
    """Two numbers of half as many digits."""
    large = a * (1 + 2 ** -(-(jnp.finfo(a.dtype).nmant + 1) // 2))
    high = large - (large - a)
    return high, a - high


def two_product(a: jax.Array, b: jax.Array) -> Pair:
    product, (a1, a2), (b1, b2) = a * b, halves(a), halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def lost(total: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """What the sum of a and b has lost; the larger one loses nothing."""
    return jnp.where(jnp.abs(a) >= jnp.abs(b), (a - total) + b, (b - total) + a)


def _kahan(state: Any, x: jax.Array) -> tuple[Any, Any]:
    total, error = state
    y = x - error
    now = total + y
    return (now, (now - total) - y), now


def _neumaier(state: Any, x: jax.Array) -> tuple[Any, Any]:
    total, error = state
    now = total + x
    return (now, error + lost(now, total, x)), now


def _klein(state: Any, x: jax.Array) -> tuple[Any, Any]:
    total, first, second = state
    now = total + x
    error = lost(now, total, x)
    both = first + error
    return (now, both, second + lost(both, first, error)), both


def _two_sums(state: Any, x: jax.Array) -> tuple[Any, Any]:
    total, error = state
    now, more = two_sum(total, x)
    return (now, error + more), (now, more)


def _double_single(state: Any, x: jax.Array) -> tuple[Any, Any]:
    high, low = state
    total, error = two_sum(high, x)
    now = fast_two_sum(total, error + low)
    return now, now


def _two_products(state: Any, x: jax.Array) -> tuple[Any, Any]:
    """A product of many numbers, with what all the products before have lost."""
    high, low = state
    product, error = two_product(high, x)
    return (product, low + error), (product, error)


def _delayed(state: Any, x: jax.Array) -> tuple[Any, Any]:
    """What the step before has lost."""
    total, before, added = state
    return (total + x, total, x), (total - before) - added


STEPS: Mapping[str, tuple[int, Function]] = {
    **{"kahan": (2, _kahan), "neumaier": (2, _neumaier), "klein": (3, _klein), "two_sum": (2, _two_sums)},
    **{"two_product": (2, _two_products), "double_single": (2, _double_single), "delayed": (3, _delayed)},
}
SUMS = [name for name in STEPS if name != "two_product"]
DTYPES = ("float32", "float16", "bfloat16")


def in_loop(name: str) -> Function:
    count, step = STEPS[name]

    def summed(xs: jax.Array) -> Any:
        first = jnp.full(xs.shape[1:], name == "two_product", xs.dtype)
        return lax.scan(step, (first,) + (jnp.zeros_like(first),) * (count - 1), xs)

    return summed


def some(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, size=shape), np.float64).astype(dtype)


def factors(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(1 + some(shape) / 1000, np.float64).astype(dtype)


def agree(function: Function, *args: Any, backend: Any = "interpret", **options: Any) -> list[np.ndarray]:
    """To the last bit; what was found."""
    wanted = jax.tree.leaves(jax.jit(function)(*args))
    found = jax.tree.leaves(fuse(function, backend=backend, strict=True, **options)(*args))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))
    return [np.asarray(each, np.float64) for each in found]


@pytest.mark.parametrize("lanes", [(), (3,)], ids=["one", "several"])
@pytest.mark.parametrize("name", STEPS)
def test_in_a_loop(name: str, lanes: tuple[int, ...]) -> None:
    shape = (200, *lanes)
    found = agree(in_loop(name), factors(shape) if name == "two_product" else some(shape))
    assert any(np.any(each != 0) for each in found[1:])


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_in_16_bits_is_rounded_in_each_step(name: str) -> None:
    for dtype in DTYPES[1:]:
        found = agree(in_loop(name), some((60,), jnp.dtype(dtype)))
        assert any(np.any(each != 0) for each in found[1:])


@pytest.mark.parametrize("name", ["kahan", "two_sum"])
def test_in_a_long_loop(name: str) -> None:
    """For which stretches would go side by side."""
    agree(lambda xs: in_loop(name)(xs)[0], some((8192,)))


@pytest.mark.parametrize("name", ["neumaier", "two_product"])
def test_in_a_loop_on_the_machine(name: str) -> None:
    shape = (40, 2)
    agree(in_loop(name), factors(shape) if name == "two_product" else some(shape), backend="machine")


@pytest.mark.parametrize("name", SUMS)
def test_vmapped(name: str) -> None:
    agree(jax.vmap(in_loop(name)), some((3, 50)))


@pytest.mark.parametrize("name", SUMS)
def test_gradients(name: str) -> None:
    """Cotangents of such a step cancel as well."""

    def loss(xs: jax.Array, weights: jax.Array) -> jax.Array:
        return sum(
            (jnp.vdot(leaf, weights[: leaf.size]) for leaf in jax.tree.leaves(in_loop(name)(xs)[0])), jnp.float32(0)
        )

    xs, weights = some((50,)), some((3,), seed=1)
    wanted = jax.jit(jax.grad(loss))(xs, weights)
    np.testing.assert_array_equal(fuse(jax.grad(loss), backend="interpret")(xs, weights), wanted)
    np.testing.assert_array_equal(jax.grad(fuse(loss, backend="interpret"))(xs, weights), wanted)


STRAIGHT: Mapping[str, Function] = {
    "two_sum": two_sum,
    "fast_two_sum": fast_two_sum,
    "halves": lambda a, b: (*halves(a), *halves(b)),
    "two_product": two_product,
    "sum of a product": lambda a, b: two_sum(two_product(a, b)[0], a),
    "double_single": lambda a, b: fast_two_sum(*two_sum(a, b)),
    "neumaier": lambda a, b: (a + b, lost(a + b, a, b)),
    "kahan": lambda a, b: _kahan(_kahan((a, jnp.zeros_like(a)), b)[0], a)[0],
}


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("name", STRAIGHT)
def test_outside_of_loops(name: str, backend: str) -> None:
    found = agree(STRAIGHT[name], some((40,)), some((40,), seed=1), backend=backend)
    assert np.any(found[-1] != 0)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("name", ["two_sum", "fast_two_sum", "neumaier", "kahan"])
def test_outside_of_loops_in_16_bits(name: str, dtype: str) -> None:
    found = agree(STRAIGHT[name], some((40,), jnp.dtype(dtype)), some((40,), jnp.dtype(dtype), seed=1))
    assert np.any(found[-1] != 0)


@pytest.mark.parametrize("name", ["two_sum", "halves"])
def test_outside_of_loops_with_64_bits(name: str) -> None:
    with jax.enable_x64(True):
        agree(STRAIGHT[name], some((40,), np.float64), some((40,), np.float64, seed=1), backend="machine")


def test_branches_measure_what_is_made_before_them() -> None:
    def step(state: Any, x: jax.Array) -> Any:
        total, error = state
        now = total + x
        larger = jnp.abs(total) >= jnp.abs(x)
        return (now, error + lax.cond(larger, lambda: (total - now) + x, lambda: (x - now) + total)), None

    agree(lambda xs: lax.scan(step, (jnp.float32(0), jnp.float32(0)), xs)[0], some((80,)))


def test_a_while_loop() -> None:
    def summed(xs: jax.Array) -> Any:
        def step(state: Any) -> Any:
            i, *rest = state
            return (i + 1, *_kahan(tuple(rest), xs[i])[0])

        return lax.while_loop(lambda state: state[0] < xs.size, step, (0, jnp.float32(0), jnp.float32(0)))

    agree(summed, some((80,)))


def test_an_associative_scan_of_two_sums() -> None:
    def both(one: Pair, other: Pair) -> Pair:
        total, error = two_sum(one[0], other[0])
        return fast_two_sum(total, error + (one[1] + other[1]))

    def running(xs: jax.Array) -> Any:
        return lax.associative_scan(both, (xs, jnp.zeros_like(xs)))

    xs = some((100,))
    for backend in ("interpret", "machine"):
        high, low = (np.asarray(each, np.float64) for each in fuse(running, backend=backend)(xs))
        np.testing.assert_allclose(high + low, np.cumsum(xs.astype(np.float64)), rtol=0, atol=1e-9)


def test_numbers_that_are_rounded_to_whole_ones_by_a_large_one() -> None:
    """XLA would leave the two constants out; what a program says is in that order."""
    large, xs = np.float32(3 * 2**22), some((50,))

    def summed(xs: jax.Array) -> jax.Array:
        return lax.scan(lambda c, x: ((c + x + large) - large, None), jnp.float32(0), xs)[0]

    wanted = np.float32(0)
    for x in xs:
        wanted = (wanted + x + large) - large
    assert fuse(summed, backend="interpret")(xs) == wanted


def test_a_product_of_matrices_is_measured_as_it_was_made() -> None:
    """Several kernels read it, and none of them makes it once more in another order."""

    def measured(x: jax.Array, w: jax.Array, b: jax.Array) -> Any:
        total, error = two_sum(x @ w, b)
        return total, error.max(1), jnp.abs(error).max(0), (error / jnp.spacing(total)).max()

    args = some((40, 70)), some((70, 30), seed=1), some((40, 30), seed=2)
    *_, units = fuse(measured, backend="interpret", contractions="triton")(*args)
    assert units <= 0.5
