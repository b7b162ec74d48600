"""How a GPU computes, in NumPy: narrow floats, integer division, shifts and conversions.

Where the GPU's result is undefined (a division by zero, a shift by the width or more) the result is a conspicuous
number, so that a kernel that forgot to guard against it fails its tests.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from jaxpr2triton.launch.elements import poison

Array = np.ndarray

# Floats that NumPy does not have, by Triton's names; the interpreter keeps their bits in unsigned integers.
NARROW = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e4b8": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "fp8e5b16": np.dtype(ml_dtypes.float8_e5m2fnuz),
}


def decode(data: Array, name: str) -> Array:
    """Stored bits → numbers that NumPy computes with (narrow floats become f32)."""
    narrow = NARROW.get(name)
    return data if narrow is None else data.view(narrow).astype(np.float32)


def encode(values: Array, name: str, stored: np.dtype) -> Array:
    """Numbers → stored bits, rounded to nearest even."""
    narrow = NARROW.get(name)
    if narrow is None:
        return values.astype(stored, copy=False)
    return np.asarray(values, np.float32).astype(narrow).view(stored)


def _where_defined(defined: Array, values: Array) -> Array:
    return values if defined.all() else np.where(defined, values, poison(values.dtype))


def extreme(choose: Callable[[Array, Array], Array], sign: int) -> Callable[[Array, Array], Array]:
    """NumPy's maximum (sign 1) or minimum (-1) with -0.0 below 0.0, as GPUs have it; NumPy returns either."""

    def of(a: Array, b: Array) -> Array:
        zeros = (a == 0) & (b == 0)
        return np.where(zeros, sign * (sign * a + sign * b), choose(a, b)) if zeros.any() else choose(a, b)

    return of


def quotient(a: Array, b: Array) -> Array:
    """Integer division, rounded towards zero."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return _where_defined(b != 0, ((a - np.fmod(a, divisor)) // divisor).astype(a.dtype, copy=False))


def integer_remainder(a: Array, b: Array) -> Array:
    """The remainder of `quotient`, with the sign of `a`."""
    return _where_defined(b != 0, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _unsigned(a: Array) -> Array:
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "i" else a


def _signed(a: Array) -> Array:
    return a.view(f"i{a.dtype.itemsize}") if a.dtype.kind == "u" else a


def _shift(op: Callable[[Array, Array], Array], a: Array, amount: Array, dtype: np.dtype) -> Array:
    return _where_defined(_unsigned(amount) < dtype.itemsize * 8, op(a, amount.astype(a.dtype)).view(dtype))


def shift_left(a: Array, amount: Array) -> Array:
    return _shift(np.left_shift, a, amount, a.dtype)


def shift_right_logical(a: Array, amount: Array) -> Array:
    return _shift(np.right_shift, _unsigned(a), amount, a.dtype)


def shift_right_arithmetic(a: Array, amount: Array) -> Array:
    return _shift(np.right_shift, _signed(a), amount, a.dtype)


def high_half(a: Array, b: Array) -> Array:
    """The upper half of the product of two unsigned integers, whatever sign their type has."""
    bits = a.dtype.itemsize * 8
    x, y = _unsigned(a), _unsigned(b)
    if bits < 64:
        product = x.astype(np.uint64) * y.astype(np.uint64)
        return (product >> np.uint64(bits)).astype(x.dtype).view(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFF_FFFF)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    return (x1 * y1 + (middle >> half) + (x0 * y1 + (middle & low) >> half)).view(a.dtype)


def float_to_integer(values: Array, target: np.dtype) -> Array:
    """Rounded towards zero and saturated, as the conversion instructions do.

    NaN becomes 0, or the top bit alone where 64 bits are converted. Integers of fewer than 32 bits are converted to
    32 bits first and then cut, which does not saturate.
    """
    wide = np.dtype(f"{target.kind}{max(4, target.itemsize)}")
    limits = np.iinfo(wide)
    exact = np.trunc(values.astype(np.float64))
    top = 2.0 ** (limits.bits - (wide.kind == "i"))
    converted = np.where((exact >= limits.min) & (exact < top), exact, 0.0).astype(wide)
    converted = np.where(exact >= top, wide.type(limits.max), converted)
    converted = np.where(exact < limits.min, wide.type(limits.min), converted)
    if wide.itemsize == 8:
        converted = np.where(np.isnan(exact), np.uint64(1 << 63).astype(wide), converted)
    return converted.astype(target)


def round_to_tf32(values: Array) -> Array:
    """f32 with 10 bits of mantissa, which is what tensor cores read when they are asked for tf32."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFF_E000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)
