"""The repaired arithmetic against Python's unbounded integers and the rules of rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpr2triton.launch.interpret import arithmetic

INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


def wrapped(value: int, dtype: np.dtype) -> int:
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.dtype, int, int]:
    dtype = draw(st.sampled_from(INTEGERS))
    limits = np.iinfo(dtype)
    number = st.integers(int(limits.min), int(limits.max))
    return dtype, draw(number), draw(number)


@given(pairs())
def test_integer_division(pair: tuple[np.dtype, int, int]) -> None:
    dtype, a, b = pair
    x, y = np.array([a], dtype), np.array([b], dtype)
    if b == 0:
        assert arithmetic.quotient(x, y) == arithmetic.integer_remainder(x, y) == arithmetic.poison(dtype)
        return
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    with np.errstate(over="ignore"):
        assert int(arithmetic.quotient(x, y)[0]) == wrapped(quotient, dtype)
        assert int(arithmetic.integer_remainder(x, y)[0]) == a - quotient * b


@given(pairs())
def test_products_and_shifts(pair: tuple[np.dtype, int, int]) -> None:
    dtype, a, b = pair
    bits = dtype.itemsize * 8
    unsigned = np.dtype(f"u{dtype.itemsize}")
    x, y = np.array([a], dtype), np.array([b], dtype)
    high = wrapped(a, unsigned) * wrapped(b, unsigned) >> bits
    assert int(arithmetic.high_half(x, y)[0]) == wrapped(high, dtype)
    amount = np.array([b % bits], dtype)
    assert int(arithmetic.shift_left(x, amount)[0]) == wrapped(a << b % bits, dtype)
    assert int(arithmetic.shift_right_logical(x, amount)[0]) == wrapped(wrapped(a, unsigned) >> b % bits, dtype)
    signed = wrapped(a, np.dtype(f"i{dtype.itemsize}"))
    assert int(arithmetic.shift_right_arithmetic(x, amount)[0]) == wrapped(signed >> b % bits, dtype)
    assert arithmetic.shift_left(x, np.array([bits], dtype)) == arithmetic.poison(dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(value=st.floats(width=64))
def test_floats_to_integers(dtype: np.dtype, value: float) -> None:
    wide = np.dtype(f"{dtype.kind}{max(4, dtype.itemsize)}")
    limits = np.iinfo(wide)
    if np.isnan(value):
        want = wrapped(1 << 63, wide) if wide.itemsize == 8 else 0
    else:
        want = int(min(max(value, float(limits.min)), 2.0**64))
        want = min(max(want, int(limits.min)), int(limits.max))
    assert int(arithmetic.float_to_integer(np.array([value]), dtype)[0]) == wrapped(want, dtype)


@given(st.floats(width=32, allow_subnormal=False))
def test_tf32_keeps_ten_bits(value: float) -> None:
    rounded = arithmetic.round_to_tf32(np.array([value], np.float32))[0]
    if not np.isfinite(value):
        np.testing.assert_equal(rounded, np.float32(value))
        return
    assert rounded.view(np.uint32) & 0x1FFF == 0
    assert abs(float(rounded) - value) <= abs(value) * 2.0**-11 or np.isinf(rounded)


@given(st.floats(width=32))
def test_narrow_floats_round_trip(value: float) -> None:
    stored = np.dtype(np.uint16)
    bits = arithmetic.encode(np.array([value], np.float32), "bf16", stored)
    assert bits.dtype == stored
    with np.errstate(over="ignore"):
        want = np.array([value], np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(arithmetic.decode(bits, "bf16"), want)
