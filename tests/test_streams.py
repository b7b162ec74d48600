"""Sums that go along with the reduction they depend on: what they give, what is read, and what does not go along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.api import transpile

LONG = 20_011  # elements of a row that no program holds


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def log_softmax(x: Any) -> Any:
    return jax.nn.log_softmax(x, axis=-1)


def log_sum(x: Any) -> Any:
    return jax.nn.logsumexp(x, axis=-1)


def soft_minimum(x: Any) -> Any:
    least = jnp.min(x, axis=-1, keepdims=True)
    return least[..., 0] - jnp.log(jnp.sum(jnp.exp(-(x - least)), axis=-1))


def entropy(x: Any) -> Any:
    away = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return jnp.sum(away * jnp.cos(x), axis=-1) / jnp.sum(away / 2, axis=-1)


def expectation(x: Any) -> Any:
    return jnp.sum(jax.nn.softmax(x, axis=-1) * jnp.cos(x), axis=-1)


def kept_finite(x: Any) -> Any:
    peak = jnp.max(x, axis=-1, keepdims=True)
    peak = jnp.where(peak == -jnp.inf, 0.0, peak)
    return jnp.sum(jnp.exp(x - peak), axis=-1)


def variance(x: Any) -> Any:
    return jnp.var(x, axis=-1)


def layer_norm(x: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)


def covariance(x: Any) -> Any:
    y = jnp.cos(x)
    return jnp.mean((x - x.mean(-1, keepdims=True)) * (y.mean(-1, keepdims=True) - y), axis=-1)


def of_columns(x: Any) -> Any:
    return jax.nn.logsumexp(x, axis=0), jnp.std(x, axis=0)


def cross_entropy(x: Any) -> Any:
    labels = jnp.arange(x.shape[0]) * 7
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1))


# Of each: how often it reads its input, and how often without going along.
ONCE: dict[str, tuple[Callable[[Any], Any], int]] = {
    "log_sum": (log_sum, 1),
    "soft_minimum": (soft_minimum, 1),
    "entropy": (entropy, 1),
    "expectation": (expectation, 1),
    "kept_finite": (kept_finite, 1),
    "softmax": (softmax, 2),
    "log_softmax": (log_softmax, 2),
    "variance": (variance, 1),
    "covariance": (covariance, 1),
    "layer_norm": (layer_norm, 2),
    "cross_entropy": (cross_entropy, 1),
}


def rows(*shape: int, dtype: Any = np.float32) -> Any:
    values = np.random.default_rng(0).normal(size=shape) * 4 + 3
    return jnp.asarray(values.astype(np.float32), dtype)


def compared(
    fn: Callable[..., Any], *args: Any, rtol: float = 2e-5, atol: float = 2e-6, backend: str = "interpret"
) -> None:
    got = j2t.fuse(fn, backend=backend, strict=True)(*args)
    want = jax.jit(fn)(*args)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        both = (np.asarray(each).astype(np.float64) for each in (one, other))
        np.testing.assert_allclose(*both, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ONCE)
def test_long_rows_are_read_once_for_their_statistics(name: str) -> None:
    fn, times = ONCE[name]
    x = rows(256, LONG)
    kernels = transpile(fn, x).kernels
    assert sum(kernel.bytes_read for kernel in kernels) < (times + 0.05) * x.nbytes


@pytest.mark.parametrize("name", ONCE)
def test_values(name: str) -> None:
    compared(ONCE[name][0], rows(3, LONG))


@pytest.mark.parametrize("name", ["log_sum", "softmax", "variance", "layer_norm", "cross_entropy"])
def test_gradients(name: str) -> None:
    fn = ONCE[name][0]
    compared(jax.grad(lambda x: jnp.sum(jnp.sin(fn(x)))), rows(3, LONG), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["log_sum", "softmax", "variance"])
def test_of_16_bits(name: str) -> None:
    compared(ONCE[name][0], rows(2, LONG, dtype=jnp.bfloat16), rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("name", ["log_sum", "softmax", "variance", "covariance"])
def test_of_64_bits(name: str) -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(2, LONG)) + 5)
        compared(ONCE[name][0], x, rtol=1e-12, atol=1e-14)


FOUND = {
    "a number": [(0, 1.0)],
    "the largest at the end": [(LONG - 1, 300.0)],
    "all that is before it vanishes": [(0, 200.0), (LONG - 1, 400.0)],
    "NaN": [(9000, np.nan)],
    "NaN at the end": [(LONG - 1, np.nan)],
    "infinite": [(9000, np.inf)],
    "infinite at the beginning": [(0, np.inf)],
    "infinite twice": [(3, np.inf), (LONG - 3, np.inf)],
    "infinite, and NaN": [(3, np.inf), (LONG - 3, np.nan)],
    "minus infinity": [(0, -np.inf), (LONG - 1, -np.inf)],
    "both": [(100, -np.inf), (16000, np.inf)],
    "huge": [(100, 3e38), (16000, -3e38)],
}
NEXT = {
    "nothing": lambda x: jnp.full_like(x, -jnp.inf),
    "everything": lambda x: jnp.full_like(x, jnp.inf),
    "nothing at first": lambda x: x.at[:, :9000].set(-jnp.inf).at[:, 9000:].add(-200.0),
    "nothing at last": lambda x: x.at[:, 9000:].set(-jnp.inf).at[:, :9000].add(-200.0),
    "one element": lambda x: jnp.full_like(x, -jnp.inf).at[:, 12345].set(-1e30),
    "deep below": lambda x: x - 1e4,
    "high above": lambda x: x + 1e4,
    "alike": lambda x: jnp.full_like(x, 1e4),
    "rising": lambda x: jnp.sort(x, axis=-1) * 50,
}
SPECIAL = {name: (lambda x, at=at: _with(x, at)) for name, at in FOUND.items()} | NEXT


def _with(x: Any, places: list[tuple[int, float]]) -> Any:
    for place, value in places:
        x = x.at[0, place].set(value)
    return x


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", ["log_sum", "softmax", "soft_minimum", "kept_finite", "log_softmax"])
def test_what_is_not_finite(name: str, special: str) -> None:
    x = SPECIAL[special](rows(2, LONG))
    compared(ONCE[name][0], -x if name == "soft_minimum" else x, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("special", sorted({*SPECIAL} - {"high above", "alike", "deep below"}))
def test_variances_of_what_is_not_finite(special: str) -> None:
    compared(variance, SPECIAL[special](rows(2, LONG)), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("special", ["far from zero", "first zeros"])
def test_variances_lose_no_digits(special: str) -> None:
    """Squares that are subtracted from each other would leave nothing here."""
    x = np.random.default_rng(1).normal(size=(2, LONG)) * 0.01 + 1000
    if special == "first zeros":
        x[:, :4096] = 0
    x = x.astype(np.float32)
    got = j2t.fuse(variance, backend="interpret")(x)
    np.testing.assert_allclose(np.asarray(got), x.astype(np.float64).var(-1), rtol=2e-3)


@pytest.mark.parametrize("name", ["log_sum", "softmax", "expectation", "variance", "covariance", "cross_entropy"])
def test_on_the_machine(name: str) -> None:
    compared(ONCE[name][0], rows(2, LONG).at[0, 5].set(np.nan).at[1, LONG - 1].set(-np.inf), backend="machine")
    compared(ONCE[name][0], rows(2, LONG), backend="machine")


def test_few_long_rows_on_the_machine() -> None:
    compared(softmax, rows(2, 140_001), rtol=1e-4, backend="machine")


@pytest.mark.parametrize("size", [16_385, 20_480, 24_577])
def test_odd_sizes(size: int) -> None:
    compared(lambda x: (log_sum(x), variance(x)), rows(2, size))


def test_columns() -> None:
    compared(of_columns, rows(20_001, 256), rtol=1e-4)


def test_what_fits_is_held() -> None:
    (kernel,) = transpile(softmax, rows(8, 1000)).kernels
    assert "shrink" not in kernel.source


def test_what_is_compared_with_the_maximum_waits_for_it() -> None:
    def ties(x: Any) -> Any:
        return jnp.sum(jnp.where(x == x.max(-1, keepdims=True), 1.0, 0.0), axis=-1)

    (kernel,) = transpile(ties, rows(256, LONG)).kernels
    assert "shrink" not in kernel.source
    compared(ties, rows(3, LONG))


def test_terms_that_may_exceed_the_maximum_wait_for_it() -> None:
    def of_others(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.exp(y - x.max(-1, keepdims=True)), axis=-1)

    (kernel,) = transpile(of_others, rows(256, LONG), rows(256, LONG)).kernels
    assert "shrink" not in kernel.source
    x = rows(2, LONG).at[:, -1].set(300.0)
    compared(of_others, x, rows(2, LONG) + 200)


def test_a_factor_without_a_mean_may_be_infinite() -> None:
    x = rows(2, LONG)
    compared(lambda x, y: ((x - x.mean(-1, keepdims=True)) * y).sum(-1), x, x.at[0, 5].set(np.inf), rtol=1e-4)
    compared(lambda x, y: ((x - x.mean(-1, keepdims=True)) * (y - y.max(-1, keepdims=True))).sum(-1), x, x, rtol=1e-4)


def test_a_limit_of_its_own_is_no_infinity() -> None:
    def clipped(x: Any) -> Any:
        peak = x.max(-1, keepdims=True)
        return jnp.sum(jnp.exp(x - jnp.where(peak > 10, peak, 0.0)), axis=-1)

    compared(clipped, rows(2, LONG).at[:, -1].set(40.0))


FEW = 300_001  # elements of rows that are fewer than the processors


STATISTICS = ["variance", "covariance", "layer_norm"]


@pytest.mark.parametrize("name", ["log_sum", "soft_minimum", "softmax", "log_softmax", "expectation", *STATISTICS])
def test_few_long_rows_are_shared_out(name: str) -> None:
    fn, times = ONCE[name]
    x = rows(2, FEW)
    kernels = transpile(fn, x).kernels
    assert sum(kernel.bytes_read for kernel in kernels) < (times + 0.05) * x.nbytes
    assert len(kernels) == 1 + times
    assert all(np.prod(kernel.grid) >= 64 for kernel in kernels if kernel.bytes_read > x.nbytes / 2)
    compared(fn, x, rtol=1e-4)


@pytest.mark.parametrize("special", NEXT)
@pytest.mark.parametrize("name", ["log_sum", "softmax", "soft_minimum", "kept_finite", *STATISTICS])
def test_few_long_rows_of_what_is_not_finite(name: str, special: str) -> None:
    x = NEXT[special](rows(2, FEW))
    atol = 1e-3 if name == "layer_norm" else 1e-6  # a mean of 10,000 has no more digits
    compared(ONCE[name][0], -x if name == "soft_minimum" else x, rtol=2e-4, atol=atol)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["log_sum", "softmax", "kept_finite", *STATISTICS])
def test_few_long_rows_with_one_number(name: str, value: float) -> None:
    compared(ONCE[name][0], rows(2, FEW).at[0, 200_000].set(value), rtol=2e-4, atol=1e-6)


def test_gradients_of_few_long_rows() -> None:
    compared(jax.grad(lambda x: jnp.sum(jnp.sin(log_sum(x)))), rows(2, FEW), rtol=1e-4, atol=1e-6)
    compared(jax.grad(lambda x: jnp.sum(jnp.sin(softmax(x) * 10))), rows(2, FEW), rtol=1e-4, atol=1e-6)


    compared(jax.grad(lambda x: jnp.sum(jnp.sin(layer_norm(x)))), rows(2, FEW), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fn", [jax.nn.softmax, jnp.var], ids=lambda fn: fn.__name__)
def test_few_long_columns(fn: Callable[..., Any]) -> None:
    compared(lambda x: fn(x, axis=0), rows(FEW, 3), rtol=1e-4)


def batch_norm(x: Any) -> Any:
    """Each result is one of the last dimension."""
    axes = tuple(range(x.ndim - 1))
    mean, spread = x.mean(axes), x.var(axes)
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5), mean


def of_channels(x: Any) -> Any:
    """Each result is one of the second dimension."""
    mean = x.mean((0, 2, 3), keepdims=True)
    return jnp.square(x - mean).mean((0, 2, 3)), mean, jax.nn.logsumexp(x, (0, 2, 3))


def products_of_columns(x: Any) -> Any:
    y = jnp.sin(x) + 3
    return ((x - x.mean(0)) * (y - y.mean(0))).mean(0)


IN_CHUNKS: dict[str, tuple[Callable[..., Any], tuple[int, ...], int, int]] = {  # how often it is read, and kernels
    "log_sum_of_all": (jax.nn.logsumexp, (300, 701), 1, 2),
    "log_sum_of_columns": (lambda x: jax.nn.logsumexp(x, 0), (4099, 70), 1, 2),
    "softmax_of_columns": (lambda x: jax.nn.softmax(x, 0), (4099, 70), 2, 3),
    "spread_of_all": (lambda x: (x.mean(), x.std()), (300, 701), 1, 2),
    "batch_norm_of_columns": (batch_norm, (4099, 70), 2, 3),
    "batch_norm_of_pictures": (batch_norm, (5, 31, 29, 24), 2, 3),
    "batch_norm_of_channels": (of_channels, (40, 3, 31, 29), 1, 2),
    "products_of_columns": (products_of_columns, (4099, 70), 1, 2),
    "three_rows_of_pictures": (lambda x: x.var((1, 3)), (3, 300, 2, 300), 1, 2),
}


@pytest.mark.parametrize("name", IN_CHUNKS)
def test_what_is_shared_out_is_read_once(name: str) -> None:
    fn, shape, times, count = IN_CHUNKS[name]
    x = rows(*shape)
    kernels = transpile(fn, x).kernels
    assert sum(kernel.bytes_read for kernel in kernels) < (times + 0.15) * x.nbytes
    assert len(kernels) == count
    compared(fn, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", IN_CHUNKS)
def test_what_is_shared_out_with_one_number(name: str, value: float) -> None:
    fn, shape, *_ = IN_CHUNKS[name]
    x = rows(*shape)
    compared(fn, x.at[(0,) * (len(shape) - 1)].set(value), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["spread_of_all", "batch_norm_of_columns", "batch_norm_of_channels", "log_sum_of_all"])
def test_gradients_of_what_is_shared_out(name: str) -> None:
    fn, shape, *_ = IN_CHUNKS[name]

    def loss(x: Any) -> Any:
        return sum(jnp.sum(jnp.sin(each)) for each in jax.tree.leaves(fn(x)))

    compared(jax.grad(loss), rows(*shape), rtol=1e-4, atol=1e-5)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["spread_of_all", "batch_norm_of_pictures", "batch_norm_of_channels"])
def test_what_is_shared_out_on_the_machine(name: str) -> None:
    fn, shape, *_ = IN_CHUNKS[name]
    compared(fn, rows(*shape), rtol=1e-4, atol=1e-5, backend="machine")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_spreads_of_16_bits(dtype: Any) -> None:
    compared(lambda x: (x.mean(0), x.var(0)), rows(4099, 70, dtype=dtype), rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("fn", [log_sum, variance])
def test_few_long_rows_of_16_bits(fn: Callable[[Any], Any]) -> None:
    compared(fn, rows(2, FEW, dtype=jnp.bfloat16), rtol=2e-2)


@pytest.mark.parametrize("scale", [1e-25, 1e18, 1e38])
def test_variances_of_few_long_rows_that_are_large_or_small(scale: float) -> None:
    compared(variance, rows(2, FEW) * scale + 5 * scale)


def test_what_values_are_away_from_may_be_summed_itself() -> None:
    def both(x: Any) -> Any:
        shift = jnp.broadcast_to(x.mean(-1, keepdims=True), x.shape)
        return ((shift - x) ** 2).sum(-1), shift.sum(-1), (shift * jnp.cos(x)).sum(-1)

    compared(both, rows(2, FEW), rtol=1e-4, atol=1e-3)


def test_a_long_row_far_from_zero() -> None:
    compared(variance, 1000 + rows(2, FEW) / 100, rtol=1e-3)


def test_backward_passes_of_few_long_rows_have_programs_enough() -> None:
    x = rows(4, FEW)
    for fn in (softmax, log_softmax, layer_norm):
        kernels = transpile(lambda x, dy, fn=fn: jax.vjp(fn, x)[1](dy)[0], x, x).kernels
        assert all(np.prod(kernel.grid) >= 64 for kernel in kernels if kernel.bytes_read > x.nbytes / 2)


PLACES: dict[str, Callable[[Any], Any]] = {
    "argmax": lambda x: jnp.argmax(x, -1),
    "argmin": lambda x: jnp.argmin(x, -1),
    "both": lambda x: (jnp.argmax(x, -1), x.max(-1)),
    "of all": jnp.argmax,
    "of columns": lambda x: jnp.argmin(x.T, 0),
}


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8, np.uint32, np.bool_], ids=str)
@pytest.mark.parametrize("name", PLACES)
def test_places_in_few_long_rows(name: str, dtype: Any) -> None:
    x = jnp.round(rows(3, FEW) * 2).astype(dtype) if dtype is not np.bool_ else rows(3, FEW) > 19
    compared(PLACES[name], x)
    kernels = transpile(PLACES[name], x).kernels
    assert len(kernels) == 2 and np.prod(kernels[0].grid) >= 64


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", PLACES)
def test_places_of_what_is_not_finite(name: str, value: float) -> None:
    compared(PLACES[name], rows(2, FEW).at[:, 200_000].set(value).at[:, 290_000].set(value))
    compared(PLACES[name], jnp.full((2, FEW), value, np.float32))
