"""Primitives that Triton has no word for, written with those that it has.

Each function takes the operands and parameters of its primitive and is traced in the primitive's place:

    b:i32[8] = clz a   →   shifts, ors, and a population count in ordinary arithmetic

The result has the dtype of the primitive's result; a weak type is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.ir.dtypes import is_float, is_unsigned

Array = jax.Array


def _bits(dtype: Any) -> int:
    return np.dtype(dtype).itemsize * 8


def _unsigned(dtype: Any) -> np.dtype:
    return np.dtype(f"uint{_bits(dtype)}")


def _signed(dtype: Any) -> np.dtype:
    return np.dtype(f"int{_bits(dtype)}")


def _like(x: Array, value: Any) -> Any:
    """The value as a scalar of the dtype of x."""
    return np.asarray(value, x.dtype)[()]


def _in_float32(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """16-bit floats are computed as float32 and rounded once, at the end."""

    @wraps(function)
    def widened(x: Array) -> Array:
        if x.dtype.itemsize > 2:
            return function(x)
        return lax.convert_element_type(function(lax.convert_element_type(x, np.float32)), x.dtype)

    return widened


# powers


def integer_pow(x: Array, *, y: int) -> Array:
    """x**5 → (x*x)*(x*x) * x by repeated squaring; a negative power is the reciprocal."""
    if y == 0:
        return lax.full_like(x, 1)
    power, square, rest = None, x, abs(y)
    while True:
        if rest & 1:
            power = square if power is None else lax.mul(power, square)
        rest >>= 1
        if not rest:
            break
        square = lax.mul(square, square)
    assert power is not None  # y is not 0
    return lax.div(_like(x, 1), power) if y < 0 else power


def polynomial(x: Array, *coefficients: Array, unroll: int | None = None) -> Array:
    """Horner's rule, lowest coefficient first."""
    return reduce(lambda total, c: lax.add(lax.mul(total, x), c), reversed(coefficients[:-1]), coefficients[-1])


@_in_float32
def cbrt(x: Array) -> Array:
    """exp(log|x| / 3) and one Newton step."""
    size = lax.abs(x)
    root = lax.exp(lax.mul(lax.log(size), _like(x, 1 / 3)))
    root = lax.sub(root, lax.mul(lax.sub(root, lax.div(size, lax.mul(root, root))), _like(x, 1 / 3)))
    ordinary = lax.bitwise_and(lax.is_finite(x), lax.ne(x, _like(x, 0)))
    return lax.select(ordinary, lax.mul(lax.sign(x), root), x)


_STEPS = 8
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)  # B(2k) / 2k


@_in_float32
def digamma(x: Array) -> Array:
    """The asymptotic series at x + 8, carried back by ψ(x) = ψ(x+1) - 1/x; below 1/2 reflected, ψ(1-x) - π/tan(πx)."""
    zero, half, one, pi = (_like(x, value) for value in (0, 0.5, 1, np.pi))
    reflected = lax.lt(x, half)
    z = lax.select(reflected, lax.sub(one, x), x)
    steps = reduce(lax.add, [lax.div(one, lax.add(z, _like(x, k))) for k in range(_STEPS)])
    far = lax.add(z, _like(x, _STEPS))
    inverse = lax.div(one, far)
    square = lax.mul(inverse, inverse)
    series = reduce(lambda total, b: lax.add(lax.mul(total, square), _like(x, b)), reversed(_BERNOULLI), zero)
    tail = lax.add(lax.mul(half, inverse), lax.mul(square, series))
    value = lax.sub(lax.sub(lax.log(far), tail), steps)
    fraction = lax.sub(x, lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN))
    cotangent = lax.div(pi, lax.tan(lax.mul(pi, fraction)))
    pole = lax.select(lax.eq(x, zero), lax.full_like(x, -np.inf), lax.full_like(x, np.nan))
    below = lax.select(lax.eq(fraction, zero), pole, lax.sub(value, cotangent))
    return lax.select(reflected, below, value)


_NEAR = (  # i1e(x) / x for x of 0 to 8, in Chebyshev polynomials of x / 4 - 1
    *(0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516),
    *(-0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758),
    *(-0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06),
    *(-8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09),
    *(-1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11),
    *(-1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15),
    *(-1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17),
)
_FAR = (  # i1e(x) * sqrt(x) beyond, of 16 / x - 1
    *(0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06),
    *(-2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10),
    *(-1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12),
    *(-7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14),
    *(1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16),
    *(2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17),
)


@_in_float32
def bessel_i1e(x: Array) -> Array:
    """A series near zero, and one in 1 / x far from it; odd."""
    size = lax.abs(x)
    bounded = lax.min(size, _like(x, 8))
    near = lax.mul(bounded, _chebyshev(lax.sub(lax.div(bounded, _like(x, 4)), _like(x, 1)), _NEAR))
    large = lax.max(size, _like(x, 8))
    far = lax.div(_chebyshev(lax.sub(lax.div(_like(x, 16), large), _like(x, 1)), _FAR), lax.sqrt(large))
    return lax.mul(lax.sign(x), lax.select(lax.le(size, _like(x, 8)), near, far))


def _chebyshev(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Clenshaw's rule, lowest coefficient first."""
    twice, last, sum_ = lax.add(x, x), lax.full_like(x, 0), lax.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[1:-1]):
        last, sum_ = sum_, lax.add(lax.sub(lax.mul(twice, sum_), last), _like(x, coefficient))
    return lax.add(lax.sub(lax.mul(x, sum_), last), _like(x, coefficients[0]))


# floats as bits


def _float_format(dtype: Any) -> tuple[int, int]:
    """Bits of the exponent and of the mantissa."""
    info = jnp.finfo(dtype)
    return info.nexp, info.nmant


def nextafter(x: Array, y: Array) -> Array:
    """One step of the bits, away from zero or towards it."""
    bits = _unsigned(x.dtype)
    sign = bits.type(1 << (_bits(bits) - 1))
    x_bits, y_bits = lax.bitcast_convert_type(x, bits), lax.bitcast_convert_type(y, bits)
    x_size, y_size = lax.bitwise_and(x_bits, bits.type(~sign)), lax.bitwise_and(y_bits, bits.type(~sign))
    x_sign, y_sign = lax.bitwise_and(x_bits, sign), lax.bitwise_and(y_bits, sign)
    smallest = lax.bitwise_or(y_sign, bits.type(1))
    inwards = lax.bitwise_or(lax.ne(x_sign, y_sign), lax.gt(x_size, y_size))
    moved = lax.select(inwards, lax.sub(x_bits, bits.type(1)), lax.add(x_bits, bits.type(1)))
    stepped = lax.select(lax.eq(x_size, bits.type(0)), smallest, moved)
    result = lax.select(lax.eq(x, y), y, lax.bitcast_convert_type(stepped, x.dtype))
    return lax.select(lax.bitwise_or(lax.ne(x, x), lax.ne(y, y)), lax.add(x, y), result)


def reduce_precision(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounds to nearest even; what the smaller format cannot hold becomes infinity or zero, never a denormal."""
    exponent, mantissa = _float_format(x.dtype)
    bits = _unsigned(x.dtype)
    word = lax.bitcast_convert_type(x, bits)
    if mantissa_bits < mantissa:
        dropped = mantissa - mantissa_bits
        odd = lax.bitwise_and(lax.shift_right_logical(word, bits.type(dropped)), bits.type(1))
        word = lax.add(word, lax.add(odd, bits.type((1 << (dropped - 1)) - 1)))
        word = lax.bitwise_and(word, bits.type(np.iinfo(bits).max ^ ((1 << dropped) - 1)))
    if exponent_bits < exponent:
        infinity = ((1 << exponent) - 1) << mantissa
        bias, smaller_bias = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        sign = lax.bitwise_and(word, bits.type(1 << (_bits(bits) - 1)))
        scale = lax.bitwise_and(word, bits.type(infinity))
        overflows = lax.gt(scale, bits.type((bias + smaller_bias) << mantissa))
        underflows = lax.le(scale, bits.type((bias - smaller_bias) << mantissa))
        word = lax.select(underflows, sign, word)
        word = lax.select(overflows, lax.bitwise_or(sign, bits.type(infinity)), word)
    return lax.select(lax.ne(x, x), x, lax.bitcast_convert_type(word, x.dtype))


def _total_order(compare: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Floats in the order of their bits: -NaN < -inf < -0.0 < 0.0 < inf < NaN."""

    def key(x: Array) -> Array:
        bits = lax.bitcast_convert_type(x, _signed(x.dtype))
        if_negative = lax.shift_right_arithmetic(bits, _like(bits, _bits(bits.dtype) - 1))
        return lax.bitwise_xor(bits, lax.bitwise_and(if_negative, _like(bits, np.iinfo(bits.dtype).max)))

    def compared(x: Array, y: Array) -> Array:
        return compare(key(x), key(y)) if is_float(x.dtype) else compare(x, y)

    return compared


# integers as bits


def _as_unsigned(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    @wraps(function)
    def unsigned(x: Array) -> Array:
        if is_unsigned(x.dtype):
            return function(x)
        return lax.convert_element_type(function(lax.convert_element_type(x, _unsigned(x.dtype))), x.dtype)

    return unsigned


@_as_unsigned
def population_count(x: Array) -> Array:
    """Adds neighbouring bits, then pairs, then halves of bytes; a product adds up the bytes."""

    def masked(x: Array, byte: int) -> Array:
        return lax.bitwise_and(x, _like(x, int.from_bytes([byte] * x.dtype.itemsize, "big")))

    def shifted(x: Array, bits: int) -> Array:
        return lax.shift_right_logical(x, _like(x, bits))

    x = lax.sub(x, masked(shifted(x, 1), 0x55))
    x = lax.add(masked(x, 0x33), masked(shifted(x, 2), 0x33))
    x = masked(lax.add(x, shifted(x, 4)), 0x0F)
    if x.dtype.itemsize == 1:
        return x
    ones = _like(x, int.from_bytes([1] * x.dtype.itemsize, "big"))
    return shifted(lax.mul(x, ones), _bits(x.dtype) - 8)


@_as_unsigned
def clz(x: Array) -> Array:
    """The width less the bits at and below the highest bit that is set."""
    width, distance = _bits(x.dtype), 1
    while distance < width:
        x = lax.bitwise_or(x, lax.shift_right_logical(x, _like(x, distance)))
        distance *= 2
    return lax.sub(_like(x, width), population_count(x))


DECOMPOSITIONS: Mapping[str, Callable[..., Array]] = {
    "integer_pow": integer_pow,
    "polynomial": polynomial,
    "cbrt": cbrt,
    "digamma": digamma,
    "bessel_i1e": bessel_i1e,
    "nextafter": nextafter,
    "reduce_precision": reduce_precision,
    "eq_to": _total_order(lax.eq),
    "le_to": _total_order(lax.le),
    "lt_to": _total_order(lax.lt),
    "population_count": population_count,
    "clz": clz,
}
