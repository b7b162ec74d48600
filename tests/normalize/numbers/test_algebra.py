"""Rewrites that keep every bit, and those that are not made because they would not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.numbers.algebra import holds, simplify_algebra
from tests.normalize.passing import SPECIAL, after, primitives_of, same_bits, traced

FLOATS = [SPECIAL, SPECIAL.astype(np.float16), SPECIAL.astype(jnp.bfloat16)]
INTEGERS = [np.array([0, 1, -1, 5, -(2**31), 2**31 - 1], np.int32), np.array([0, 1, 200, 255], np.uint8)]
BOOLS = [np.array([True, False])]


def _like(x: Any, value: float) -> Any:
    return np.asarray(value, x.dtype)[()]


def _full(x: Any, value: float) -> Any:
    return lax.broadcast(_like(x, value), x.shape)


def _largest(x: Any) -> Any:
    return np.inf if x.dtype.kind not in "iub" else True if is_bool(x.dtype) else np.iinfo(x.dtype).max


def _smallest(x: Any) -> Any:
    return -np.inf if x.dtype.kind not in "iub" else False if is_bool(x.dtype) else np.iinfo(x.dtype).min


GONE: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "x * 1": (lambda x: lax.mul(x, _like(x, 1)), FLOATS + INTEGERS),
    "ones * x": (lambda x: lax.mul(_full(x, 1), x), FLOATS + INTEGERS),
    "x / 1": (lambda x: lax.div(x, _like(x, 1)), FLOATS + INTEGERS),
    "x + -0.0": (lambda x: lax.add(x, _like(x, -0.0)), FLOATS),
    "x + 0": (lambda x: lax.add(_full(x, 0), x), INTEGERS),
    "x - 0": (lambda x: lax.sub(x, _like(x, 0)), FLOATS + INTEGERS),
    "--x": (lambda x: lax.neg(lax.neg(x)), FLOATS + INTEGERS),
    "not not x": (lambda x: lax.bitwise_not(lax.bitwise_not(x)), INTEGERS + BOOLS),
    "max with the least": (lambda x: lax.max(_full(x, _smallest(x)), x), FLOATS + INTEGERS + BOOLS),
    "min with the greatest": (lambda x: lax.min(x, _like(x, _largest(x))), FLOATS + INTEGERS + BOOLS),
    "x | 0": (lambda x: lax.bitwise_or(x, _full(x, 0)), INTEGERS + BOOLS),
    "x ^ 0": (lambda x: lax.bitwise_xor(_full(x, 0), x), INTEGERS + BOOLS),
    "x & all": (lambda x: lax.bitwise_and(x, lax.broadcast(~np.zeros((), x.dtype), x.shape)), INTEGERS + BOOLS),
    "x << 0": (lambda x: lax.shift_left(x, _full(x, 0)), INTEGERS),
    "select True": (lambda x: lax.select_n(np.bool_(True), x + x, x), FLOATS + INTEGERS),
    "select x x": (lambda x: lax.select_n(x > _like(x, 1), x, x), FLOATS + INTEGERS),
    "x ** 1": (lambda x: lax.integer_pow(x, 1), FLOATS),
    "there and back": (lambda x: x.astype(np.float32).astype(x.dtype), FLOATS + BOOLS),
}


@pytest.mark.parametrize("name", GONE)
def test_nothing_is_left(name: str) -> None:
    function, arrays = GONE[name]
    for x in arrays:
        left = primitives_of(remove_dead(after(simplify_algebra, function, x)))
        assert left in ([], ["not"]), (x.dtype, left)


def test_before_and_after() -> None:
    def function(x: Any, y: Any) -> Any:
        return (lax.neg(x) + y * -1.0) - lax.neg(lax.abs(lax.neg(y)))

    assert str(remove_dead(after(simplify_algebra, function, SPECIAL, SPECIAL[::-1].copy()))) == (
        "{ lambda ; a:f32[12] b:f32[12]. let\n"
        "    c:f32[12] = neg a\n"
        "    d:f32[12] = sub c b\n"
        "    e:f32[12] = abs b\n"
        "    f:f32[12] = add d e\n"
        "  in (f,) }"
    )


def test_a_quotient_by_minus_one_is_a_negation() -> None:
    for x in FLOATS:
        assert primitives_of(after(simplify_algebra, lambda x: lax.div(x, _like(x, -1)), x)) == ["neg"]
    least = np.array([-(2**31)], np.int32)
    assert primitives_of(after(simplify_algebra, lambda x: lax.div(x, _like(x, -1)), least)) == ["div"]


STAYS: dict[str, Callable[[Any], Any]] = {
    "x - -0.0": lambda x: lax.sub(x, _like(x, -0.0)),
    "0 - x": lambda x: lax.sub(_like(x, 0.0), x),
    "0 * x": lambda x: lax.mul(x, _like(x, 0.0)),
    "x - x": lambda x: lax.sub(x, x),
    "x / x": lambda x: lax.div(x, x),
    "1 / x": lambda x: lax.div(_like(x, 1), x),
    "exp log x": lambda x: lax.exp(lax.log(x)),
    "max with 0": lambda x: lax.max(x, _like(x, 0)),
    "min with the least": lambda x: lax.min(x, _like(x, -np.inf)),
    "select": lambda x: lax.select_n(x > 0, x, lax.neg(x)),
    "bf16 and back": lambda x: x.astype(jnp.bfloat16).astype(np.float32),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_would_change_a_value_stays(name: str) -> None:
    result = after(simplify_algebra, STAYS[name], SPECIAL)
    assert primitives_of(result) == primitives_of(traced(STAYS[name], SPECIAL))


def test_an_operand_that_was_spread_by_the_primitive_is_spread_still() -> None:
    def function(x: Any) -> Any:
        return primitives.mul_p.bind(lax.broadcast(np.float32(1), (12, 3)), x, out_dtype=None)

    result = remove_dead(after(simplify_algebra, function, SPECIAL.reshape(12, 1)))
    assert primitives_of(result) == ["broadcast_in_dim"]


def test_select_of_a_negation_swaps() -> None:
    result = remove_dead(after(simplify_algebra, lambda p, x: lax.select_n(~p, x, -x), SPECIAL > 0, SPECIAL))
    assert primitives_of(result) == ["neg", "select_n"]
    indices = np.array([0, 1, 1, 0], np.int32)
    after(simplify_algebra, lambda p, x: lax.select_n(lax.bitwise_not(p) & 1, x, -x), indices, SPECIAL[:4])


@pytest.mark.parametrize("compare", [lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("kind", "number"),
    [*product(["bool", "uint8", "int32", "float32"], [0, 1]), *product(["int32", "float32"], [-1, 2])],
)
def test_a_truth_value_compared_with_a_number(compare: Any, kind: str, number: int) -> None:
    truths = np.array([True, False])

    def function(p: Any) -> Any:
        return compare(p.astype(kind), np.array(number, kind))

    result = remove_dead(after(simplify_algebra, function, truths))
    expected = np.asarray(jax.jit(function)(truths))
    left = primitives_of(result)
    if (expected == truths).all() or (expected == ~truths).all():
        assert left == ([] if (expected == truths).all() else ["not"])
    np.testing.assert_array_equal(jax.core.eval_jaxpr(result.jaxpr, result.consts, truths)[0], expected)


NARROW = ["bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
DTYPES = ["bool", "int8", "uint8", "float16", "bfloat16", "int32", "float32"]
WIDE = [*NARROW, "int32", "uint32", "float32"]


def _every(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    bits = 8 * jnp.dtype(dtype).itemsize
    return np.arange(2**bits, dtype=f"uint{bits}").view(jnp.dtype(dtype))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("narrow", NARROW)
def test_what_holds_what(narrow: str) -> None:
    values = _every(narrow)
    exact = values.astype(np.float64)
    for wide in WIDE:
        there = values.astype(jnp.dtype(wide)).astype(np.float64)
        truth = bool(np.array_equal(there, exact, equal_nan=True)) and (
            wide == narrow or jnp.dtype(narrow).kind in "biu" or same_bits(there, exact)
        )
        if holds(jnp.dtype(wide), jnp.dtype(narrow)):
            assert truth, (wide, narrow)
        elif truth:  # nothing is lost by not knowing, but only for these
            assert "float8" in wide, (wide, narrow)


def _convert_twice(middle: str, end: str, x: Any) -> Any:
    return x.astype(middle).astype(end)


@pytest.mark.parametrize("start", ["bool", "int8", "uint8", "float16", "bfloat16"])
def test_chains_of_conversions(start: str) -> None:
    x = _every(start)
    if x.dtype.kind not in "biu":
        size = np.abs(x.astype(np.float32))
        x = x[(size < 100) & (size > 1e-30) | (size == 0)]  # XLA takes denormal numbers for zeros, but not always
    for middle, end in product(DTYPES, DTYPES):
        if x.dtype.kind not in "b" and jnp.dtype(end).kind == "u" and x.dtype.kind != "u":
            continue  # negative numbers as unsigned ones are undefined, unless an integer wraps around
        after(simplify_algebra, partial(_convert_twice, middle, end), x)


def test_integers_wrap_around_and_floats_saturate() -> None:
    x = np.array([300, -5, 70000], np.int32)
    wraps = after(simplify_algebra, lambda x: x.astype(np.int16).astype(np.int8), x.astype(np.int8))
    assert primitives_of(remove_dead(wraps)) == []
    stays = after(simplify_algebra, lambda x: x.astype(np.float32).astype(np.int8), x.astype(np.int16))
    assert primitives_of(stays) == ["convert_element_type"] * 2


def test_widened_and_moved_and_narrow_again() -> None:
    def mean(x: Any) -> Any:
        return jnp.broadcast_to(x.astype(np.float32).T[None], (2, 3, 4)).astype(np.float16)

    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float16)
    assert primitives_of(remove_dead(after(simplify_algebra, mean, x))) == ["transpose", *["broadcast_in_dim"] * 2]


def test_derivatives_of_conversions_say_nothing_of_shardings() -> None:
    def there_and_back(x: Any) -> Any:
        return jax.vjp(lambda x: x.astype(np.float32), x)[1](x.astype(np.float32))[0]

    assert primitives_of(remove_dead(after(simplify_algebra, there_and_back, np.ones(3, np.float16)))) == []


@pytest.mark.parametrize("sweep", [lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp])
@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_alike_in_all_rows_is_swept_once(sweep: Any, reverse: bool) -> None:
    def rows(x: Any) -> Any:
        return sweep(lax.broadcast_in_dim(x, (4, 12, 3), (1,)), axis=1, reverse=reverse)

    result = remove_dead(after(simplify_algebra, rows, SPECIAL))
    assert primitives_of(result) == [sweep.__name__, "broadcast_in_dim"]
    assert result.jaxpr.eqns[0].outvars[0].aval.shape == (12,)


def test_what_is_alike_along_the_axis_is_swept_there() -> None:
    def counted(x: Any) -> Any:
        return lax.cumsum(lax.broadcast_in_dim(x, (12, 4), (0,)), axis=1)

    def spread(x: Any) -> Any:
        return lax.cumsum(lax.broadcast_in_dim(x, (12, 4), (0, 1)), axis=1)

    for function, x in ((counted, SPECIAL), (spread, SPECIAL[:, None])):
        assert primitives_of(after(simplify_algebra, function, x)) == ["broadcast_in_dim", "cumsum"]
