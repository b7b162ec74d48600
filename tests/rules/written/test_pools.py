"""Reductions over windows: every parameter drawn, values and derivatives, and what is chosen among equals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.rules.written.pools import TABLE

DTYPES = ("float32", "float16", "bfloat16", "int32", "uint8", "float64")
START = {lax.add: 0, lax.max: None, lax.min: None, lax.mul: 1}


def start_of(combine: Any, dtype: Any) -> Any:
    if combine in (lax.add, lax.mul):
        return np.asarray(START[combine], dtype)[()]
    sign = -1 if combine is lax.max else 1
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(sign * np.inf, dtype)[()]
    return (np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min)


@st.composite
def windows(draw: st.DrawFn, dilated: bool = True) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of an array, and windows of which it has one at least."""
    shape, params = [], []
    for _ in range(draw(st.integers(1, 3))):
        size, window, stride = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
        base, dilation = (draw(st.integers(1, 3)) if dilated else 1 for _ in range(2))
        span, whole = (window - 1) * dilation + 1, (size - 1) * base + 1
        low, high = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        high += max(span - low - whole - high, 0)
        shape.append(size)
        params.append((window, stride, (low, high), base, dilation))
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return tuple(shape), dict(zip(names, map(tuple, zip(*params))))


def array(shape: tuple[int, ...], dtype: Any, seed: int, ties: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, shape) if ties else rng.permutation(int(np.prod(shape))).reshape(shape) * 0.25
    return values.astype(dtype)


def same(found: Any, wanted: Any, digits: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=digits, atol=digits)


def digits_of(dtype: Any) -> float:
    return 64 * float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0


def fused(fn: Callable[..., Any]) -> Callable[..., Any]:
    return j2t.fuse(fn, backend="interpret", strict=True)


@settings(max_examples=24)
@given(windows(), st.sampled_from(DTYPES), st.sampled_from(list(START)), st.integers(0, 99))
def test_values(drawn: Any, dtype: str, combine: Any, seed: int) -> None:
    shape, params = drawn
    with jax.enable_x64(dtype == "float64"):
        x = array(shape, dtype, seed, ties=False)
        if combine is lax.mul and dtype != "uint8":
            x = np.sign(x) + np.asarray(0.5, "float32").astype(dtype)
        run = functools.partial(lax.reduce_window, init_value=start_of(combine, dtype), computation=combine, **params)
        same(fused(run)(x), jax.jit(run)(x), 4 * digits_of(dtype))


@settings(max_examples=24)
@given(windows(dilated=False), st.sampled_from([lax.max, lax.min, lax.add]), st.booleans(), st.integers(0, 99))
def test_gradients(drawn: Any, combine: Any, ties: bool, seed: int) -> None:
    """Of equal elements the first one in the window gets all, as in JAX."""
    shape, params = drawn
    x = array(shape, "float32", seed, ties)
    run = functools.partial(lax.reduce_window, init_value=start_of(combine, x.dtype), computation=combine, **params)
    weights = array(jax.eval_shape(run, x).shape, "float32", seed + 1, ties=False)

    def gradient(x: Any, weights: Any) -> Any:
        return jax.vjp(run, x)[1](weights)[0]

    theirs = jax.jit(gradient)(x, weights)
    same(fused(gradient)(x, weights), theirs, 1e-5)
    with_ours = jax.vjp(j2t.fuse(run, backend="interpret"), x)[1](weights)[0]
    same(with_ours, theirs, 1e-5)


@settings(max_examples=16)
@given(windows(), st.sampled_from([lax.max, lax.min]), st.integers(0, 99))
def test_tangents(drawn: Any, combine: Any, seed: int) -> None:
    shape, params = drawn
    x, tangent = (array(shape, "float32", seed + n, ties=False) for n in range(2))
    run = functools.partial(lax.reduce_window, init_value=start_of(combine, x.dtype), computation=combine, **params)

    def tangents(x: Any, tangent: Any) -> Any:
        return jax.jvp(run, (x,), (tangent,))

    same(fused(tangents)(x, tangent), jax.jit(tangents)(x, tangent), 1e-5)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("combine", [lax.max, lax.min])
def test_numbers_that_are_none(combine: Any, special: float) -> None:
    x = np.full((7,), special, np.float32)
    x[3] = 1
    for each in (x, np.full((7,), special, np.float32)):
        run = functools.partial(
            lax.reduce_window,
            init_value=start_of(combine, each.dtype),
            computation=combine,
            window_dimensions=(3,),
            window_strides=(2,),
            padding="SAME",
        )

        def both(x: Any, run: Any = run) -> Any:
            return run(x), jax.vjp(run, x)[1](jnp.arange(1.0, 5.0))[0], jax.jvp(run, (x,), (jnp.arange(1.0, 8.0),))[1]

        same(fused(both)(each), jax.jit(both)(each), 0)


def test_functions_of_users() -> None:
    """In the order of the window, from the value that it begins with, also of two arrays at once."""
    x = array((4, 9), "float32", 0, ties=False)

    def last(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(3), lambda a, b: a * 0.5 + b, (2, 3), (1, 2), "VALID")

    def largest(x: Any, y: Any) -> Any:
        def larger(a: Any, b: Any) -> Any:
            stays = a[0] >= b[0]
            return jnp.where(stays, a[0], b[0]), jnp.where(stays, a[1], b[1])

        start = np.float32(-np.inf), np.int32(-1)
        return lax.reduce_window((x, y), start, larger, (2, 3), (1, 2), "SAME")

    same(fused(last)(x), jax.jit(last)(x), 1e-5)
    places = np.arange(36, dtype=np.int32).reshape(4, 9)
    same(fused(largest)(x, places), jax.jit(largest)(x, places), 0)


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("combine", [lax.add, lax.max, lax.min])
def test_windows_of_all_that_is_before(combine: Any, is_reverse: bool) -> None:
    x = array((3, 300), "float32", 0, ties=False)
    padding = [(0, 0), (0, 299) if is_reverse else (299, 0)]
    run = functools.partial(
        lax.reduce_window,
        init_value=start_of(combine, x.dtype),
        computation=combine,
        window_dimensions=(1, 300),
        window_strides=(1, 1),
        padding=padding,
    )
    same(fused(run)(x), jax.jit(run)(x), 1e-5)
    (kernel,) = j2t.transpile(run, x).kernels
    assert "associative_scan" in kernel.source


def pooled(x: Any, b: Any) -> Any:
    return lax.reduce_window(jax.nn.relu(x + b), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def averaged(x: Any, b: Any) -> Any:
    return lax.reduce_window(jax.nn.relu(x + b), 0.0, lax.add, (1, 3, 3, 1), (1, 3, 3, 1), "VALID") / 9


@pytest.mark.parametrize("fn", [pooled, averaged])
def test_one_kernel_with_what_is_around(fn: Any) -> None:
    x, b = array((2, 6, 6, 4), "float32", 0, ties=False) - 20, array((4,), "float32", 1, ties=False)
    assert len(j2t.transpile(fn, x, b, strict=True).kernels) == 1
    for backend in ("interpret", "machine"):
        ours = j2t.fuse(fn, backend=backend, strict=True)
        same(ours(x, b), fn(x, b), 1e-6)
        found, wanted = (jax.vjp(each, x, b)[1](fn(x, b)) for each in (ours, fn))
        same(found, wanted, 1e-5)


def test_in_steps_and_for_rows() -> None:
    x = array((5, 4, 8), "float32", 0, ties=False)

    def step(state: Any, x: Any) -> Any:
        state = lax.reduce_window(state + x, -jnp.inf, lax.max, (1, 3), (1, 1), "SAME")
        return state, state.sum()

    def run(x: Any) -> Any:
        return lax.scan(step, x[0], x)

    same(fused(run)(x), jax.jit(run)(x), 1e-5)
    rows = jax.vmap(lambda row: lax.reduce_window(row, 0.0, lax.add, (3,), (2,), "VALID"))
    same(fused(jax.vmap(rows))(x), jax.vmap(rows)(x), 1e-5)


def test_large_windows_are_an_axis() -> None:
    x = array((40, 40), "float32", 0, ties=False)

    def run(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (9, 9), (2, 1), "SAME")

    same(fused(run)(x), jax.jit(run)(x), 1e-5)
    chosen = jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (9, 9), (1, 1), "SAME").sum())
    (left,) = j2t.transpile(chosen, x).leftovers
    assert "81 elements" in str(left.why)
    same(j2t.fuse(chosen, backend="interpret")(x), chosen(x), 1e-5)


def test_every_row_is_tested() -> None:
    assert set(TABLE) == {
        *("reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window"),
        *("select_and_gather_add", "select_and_scatter_add"),
    }
