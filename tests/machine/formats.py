"""Floats of any format as exact numbers, in integers of Python: the measure for what the machine's C computes.

decode(0x3fc0, BF16) → Number(sign=0, count=192, power=-7)   that is 192 / 2^7 = 1.5
encode(Number(0, 3, -1), F32, "rn") → 0x3fc00000
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Format:
    fraction: int  # bits behind the point
    exponent: int  # bits of it
    nan: int = 0x7FFF_FFFF_FFFF_FFFF  # as the hardware makes it, cut to its length
    infinite: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def lowest(self) -> int:
        """The power of two of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def one_nan(self) -> int:
        return self.nan & ((1 << (self.bits - 1)) - 1)

    @property
    def largest(self) -> int:
        """e4m3 has no infinity: its last code is NaN, and the one before it a number."""
        return self.infinity - 1 if self.infinite else (1 << (self.bits - 1)) - 2


F16, BF16, F32, F64 = Format(10, 5), Format(7, 8), Format(23, 8), Format(52, 11)
E4M3, E5M2 = Format(3, 4, infinite=False), Format(2, 5)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2}


@dataclass(frozen=True)
class Number:
    """(-1)^sign · count · 2^power, or an infinity of that sign."""

    sign: int
    count: int
    power: int = 0
    infinite: bool = False


NAN = None
Real = Number | None
INFINITY = Number(0, 0, 0, infinite=True)


def decode(bits: int, f: Format) -> Real:
    sign, code = bits >> (f.bits - 1), bits & ((1 << (f.bits - 1)) - 1)
    exponent, rest = code >> f.fraction, code & ((1 << f.fraction) - 1)
    if f.infinite and code >= f.infinity:
        return replace(INFINITY, sign=sign) if code == f.infinity else NAN
    if code > f.largest:
        return NAN
    if exponent == 0:
        return Number(sign, rest, f.lowest - f.fraction)
    return Number(sign, rest | 1 << f.fraction, f.lowest + exponent - 1 - f.fraction)


def encode(x: Real, f: Format, way: str = "rn", finite: bool = False) -> int:
    """The nearest code; `finite`: what is too large is the largest number."""
    if x is NAN:
        return f.one_nan
    sign = x.sign << (f.bits - 1)
    too_large = f.largest if finite else f.infinity
    if x.infinite:
        return sign | too_large
    if x.count == 0:
        return sign
    unit = max(x.count.bit_length() - 1 + x.power, f.lowest) - f.fraction
    count = rounded(x, unit, way)
    code = ((unit + f.fraction - f.lowest) << f.fraction) + count
    if code > f.largest:
        stops = way == "rz" or way == ("rp" if x.sign else "rm")
        return sign | (f.largest if stops else too_large)
    return sign | code


def rounded(x: Number, unit: int, way: str) -> int:
    """How often 2^unit is in the size of a number."""
    shift = unit - x.power
    if shift <= 0:
        return x.count << -shift
    count, rest, half = x.count >> shift, x.count & ((1 << shift) - 1), 1 << (shift - 1)
    up = {
        "rn": rest > half or (rest == half and count & 1),
        "rna": rest >= half,
        "rz": False,
        "rm": rest and x.sign,
        "rp": rest and not x.sign,
    }[way]
    return count + bool(up)


def negative(x: Real) -> Real:
    return x if x is NAN else replace(x, sign=1 - x.sign)


def plus(x: Real, y: Real, way: str = "rn") -> Real:
    """Zero has the sign of both, or else is +0, and -0 where sums are rounded down."""
    if x is NAN or y is NAN:
        return NAN
    if x.infinite or y.infinite:
        if x.infinite and y.infinite and x.sign != y.sign:
            return NAN
        return x if x.infinite else y
    power = min(x.power, y.power)
    total = sum((-1) ** each.sign * (each.count << (each.power - power)) for each in (x, y))
    if total == 0:
        return Number(x.sign if x.sign == y.sign else int(way == "rm"), 0)
    return Number(int(total < 0), abs(total), power)


def times(x: Real, y: Real) -> Real:
    if x is NAN or y is NAN:
        return NAN
    sign = x.sign ^ y.sign
    if x.infinite or y.infinite:
        other = y if x.infinite else x
        return NAN if is_zero(other) else replace(INFINITY, sign=sign)
    return Number(sign, x.count * y.count, x.power + y.power)


DIGITS = 200  # of quotients and roots, the last one set where there are more


def over(x: Real, y: Real) -> Real:
    if x is NAN or y is NAN or (x.infinite and y.infinite) or (is_zero(x) and is_zero(y)):
        return NAN
    sign = x.sign ^ y.sign
    if x.infinite or is_zero(y):
        return replace(INFINITY, sign=sign)
    if y.infinite:
        return Number(sign, 0)
    count, rest = divmod(x.count << DIGITS, y.count)
    return Number(sign, count << 1 | bool(rest), x.power - y.power - DIGITS - 1)


def root(x: Real) -> Real:
    if x is NAN or is_zero(x):
        return x
    if x.sign or x.infinite:
        return NAN if x.sign else x
    shift = DIGITS + (x.power + DIGITS) % 2
    count = integer_root(x.count << shift)
    return Number(0, count << 1 | (count * count != x.count << shift), (x.power - shift) // 2 - 1)


def integer_root(n: int) -> int:
    low, high = 0, 1 << (n.bit_length() // 2 + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle <= n else (low, middle)
    return low


def is_zero(x: Real) -> bool:
    return x is not NAN and not x.infinite and x.count == 0


def order(x: Number, y: Number) -> int:
    """-1, 0 or 1: as x - y, with -0 equal to +0."""
    if x.infinite and y.infinite and x.sign == y.sign:
        return 0
    difference = plus(x, negative(y))
    assert difference is not NAN
    return 0 if is_zero(difference) else -1 if difference.sign else 1


def whole(x: Real, way: str) -> Real:
    """Rounded to an integer, with its sign where it is zero."""
    return x if x is NAN or x.infinite else Number(x.sign, rounded(x, 0, way))


def integer(x: Number) -> int:
    """Of what is whole."""
    return (-1) ** x.sign * rounded(x, 0, "rz")


def of_integer(n: int) -> Number:
    return Number(int(n < 0), abs(n))


def of_float(x: float) -> Real:
    """A float of Python."""
    if x != x:
        return NAN
    if x in (float("inf"), float("-inf")):
        return replace(INFINITY, sign=int(x < 0))
    top, bottom = abs(x).as_integer_ratio()
    return Number(int(str(x).startswith("-")), top, 1 - bottom.bit_length())
