"""Convolutions as contractions of windows: every parameter drawn, values and gradients."""

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
from jaxpr2triton.rules.written.convolutions import convolution


@st.composite
def convolutions(draw: st.DrawFn, most: int = 6) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """The shapes of both operands, in some layout, and parameters for which there is a result."""
    rank = draw(st.integers(0, 3))
    features, rows = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    batch, channels = draw(st.integers(1, 2)) * rows, draw(st.integers(1, 3)) * features
    results = draw(st.integers(1, 3)) * features * rows
    image, taps, around, params = [], [], [], []
    for _ in range(rank):
        size, window, stride = draw(st.integers(1, most)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        between, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        whole, span = (size - 1) * between + 1, (window - 1) * dilation + 1
        low = draw(st.integers(-1, 2))
        high = draw(st.integers(-1, 2))
        high += max(max(span, 1) - whole - low - high, 0)
        image.append(size)
        taps.append(window)
        around.append((low, high))
        params.append((stride, between, dilation))
    specs = [tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3)]
    strides, betweens, dilations = zip(*params) if params else ((), (), ())

    def laid_out(sizes: list[int], spec: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(size for _, size in sorted(zip(spec, sizes)))

    chosen = {
        "window_strides": strides,
        "padding": tuple(around),
        "lhs_dilation": betweens,
        "rhs_dilation": dilations,
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
        "feature_group_count": features,
        "batch_group_count": rows,
    }
    image, kernel = [batch, channels, *image], [results, channels // features, *taps]
    return laid_out(image, specs[0]), laid_out(kernel, specs[1]), chosen


def array(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def same(found: Any, wanted: Any, digits: float = 1e-5) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=digits, atol=digits * 10)


@settings(max_examples=24)
@given(convolutions(), st.sampled_from(["float32", "bfloat16", "float16", "int32"]), st.integers(0, 99))
def test_what_is_written_is_a_convolution(drawn: Any, dtype: str, seed: int) -> None:
    x, w, params = drawn
    x, w = array(x, seed, dtype), array(w, seed + 1, dtype)
    run = functools.partial(lax.conv_general_dilated, **params)
    (eqn,) = jax.make_jaxpr(run)(x, w).jaxpr.eqns
    same(convolution(jnp.asarray(x), jnp.asarray(w), shape=eqn.outvars[0].aval.shape, **eqn.params), run(x, w), 1e-2)


@settings(max_examples=16)
@given(convolutions(most=5), st.integers(0, 99))
def test_values_and_gradients(drawn: Any, seed: int) -> None:
    x, w, params = drawn
    x, w = array(x, seed), array(w, seed + 1)
    run = functools.partial(lax.conv_general_dilated, **params)
    given = array(jax.eval_shape(run, x, w).shape, seed + 2)

    def both(x: Any, w: Any, given: Any) -> Any:
        made, back = jax.vjp(run, x, w)
        return made, back(given)

    ours = j2t.fuse(both, backend="interpret", strict=True, contractions="triton")
    same(ours(x, w, given), jax.jit(both)(x, w, given))


def block(stride: int, groups: int, layout: str = "NHWC") -> Callable[..., Any]:
    def run(x: Any, w: Any, b: Any) -> Any:
        numbers = (layout, "HWIO", layout)
        y = lax.conv_general_dilated(x, w, (stride, stride), "SAME", None, None, numbers, groups)
        return jax.nn.relu(y + (b if layout == "NHWC" else b[:, None, None]))

    return run


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize(
    ("stride", "groups", "shape"), [(1, 1, (3, 3, 16, 32)), (2, 1, (5, 5, 1, 6)), (1, 8, (3, 3, 1, 8))]
)
def test_with_what_is_around_one_kernel(stride: int, groups: int, shape: tuple[int, ...], backend: str) -> None:
    fn = block(stride, groups)
    x, w = array((4, 9, 9, shape[2] * groups), 0) / 4, array(shape, 1) / 4
    b = array((shape[3],), 2)
    precise = jax.default_matmul_precision("highest")
    with precise:
        ours = j2t.fuse(fn, backend=backend, strict=True, contractions="triton")
        same(ours(x, w, b), fn(x, w, b))
        assert len(j2t.transpile(fn, x, w, b, contractions="triton").kernels) == 1
        found, wanted = (jax.vjp(each, x, w, b)[1](jnp.ones_like(fn(x, w, b))) for each in (ours, fn))
        same(found, wanted, 1e-4)


def test_few_terms_are_multiplied_one_by_one() -> None:
    """And a pool of them is part of the kernel."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        return lax.reduce_window(block(1, 1)(x, w, b), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x, w, b = array((2, 12, 12, 1), 0), array((5, 5, 1, 6), 1), array((6,), 2)
    (kernel,) = j2t.transpile(layer, x, w, b, contractions="triton", strict=True).kernels
    assert "tl.dot" not in kernel.source
    same(j2t.fuse(layer, backend="interpret", contractions="triton")(x, w, b), layer(x, w, b))


def test_a_library_convolves_if_it_is_asked_for() -> None:
    x, w, b = array((4, 9, 9, 16), 0), array((3, 3, 16, 32), 1), array((32,), 2)
    (left,) = j2t.transpile(block(1, 1), x, w, b, contractions="xla").leftovers
    assert str(left.why) == 'contractions="xla" leaves them to a library'


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("stride", "taps", "padding", "size"),
    [
        *((2, 3, "SAME", 8), (2, 3, (1, 1), 8), (2, 4, (1, 1), 8)),
        *((3, 2, (0, 2), 9), (2, 1, "VALID", 7), (3, 5, (2, -1), 11)),
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_strided_convolutions_skip_zeros(
    stride: int, taps: int, padding: Any, size: int, groups: int, layout: str
) -> None:
    around = padding if isinstance(padding, str) else (padding, (0, taps))
    numbers = (layout, "HWIO", layout)
    run = functools.partial(
        lax.conv_general_dilated,
        window_strides=(stride, 1 + stride // 3),
        padding=around,
        dimension_numbers=numbers,
        feature_group_count=groups,
    )
    x = array((16, size, size - 1, 4) if layout == "NHWC" else (16, 4, size, size - 1), 0)
    w = array((taps, taps, 4 // groups, 16 * groups), 1)
    given = array(jax.eval_shape(run, x, w).shape, 2)

    def back(w: Any, given: Any) -> Any:
        return jax.linear_transpose(lambda x: run(x, w), x)(given)

    ours = j2t.fuse(back, backend="interpret", strict=True, contractions="triton")
    same(ours(w, given), jax.jit(back)(w, given))


def test_a_gradient_multiplies_as_much_as_it_has_to() -> None:
    """Of nine taps each result meets four places of two by two: no more than 16 of 36 are multiplied."""
    sizes = jax.ShapeDtypeStruct((32, 28, 28, 64), np.float32), jax.ShapeDtypeStruct((3, 3, 64, 64), np.float32)
    x = jax.ShapeDtypeStruct((32, 56, 56, 64), np.float32)

    def back(given: Any, w: Any) -> Any:
        strided = functools.partial(lax.conv_general_dilated, window_strides=(2, 2), padding="SAME")
        return jax.linear_transpose(lambda x: strided(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC")), x)(given)

    (kernel,) = j2t.transpile(back, *sizes, contractions="triton", strict=True).kernels
    assert kernel.flops == 32 * 56 * 56 * 64 * 64 * 4


def test_in_steps() -> None:
    w = array((3,), 1) / 4

    def run(x: Any, w: Any) -> Any:
        return lax.scan(lambda state, row: (jnp.tanh(jnp.convolve(state, w, "same") + row), state), x[0], x)

    x = array((6, 20), 0) / 4
    same(j2t.fuse(run, backend="interpret", strict=True)(x, w), jax.jit(run)(x, w))
