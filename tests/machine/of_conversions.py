"""What conversions give."""

from __future__ import annotations

from collections.abc import Callable

from tests.machine import formats
from tests.machine.formats import (
    F16,
    F32,
    FORMATS,
    NAN,
    decode,
    encode,
    of_integer,
)
from tests.machine.words import ROUNDINGS, WHOLE, length, not_negative, number, result, value


def conversion(mods: list[str], types: list[str]) -> Callable[..., int]:
    to, source = types
    whole = next((WHOLE[m] for m in mods if m in WHOLE), "")

    def from_integer(a: int) -> int:
        n = value(a, source)
        if to in FORMATS:
            return result(of_integer(n), to, [m for m in mods if m in ROUNDINGS])
        return fitted(n, to) if "sat" in mods else value(n % (1 << length(to)), to)

    def from_float(a: int) -> int:
        x = number(a, source, mods if source == "f32" else [])
        if to not in FORMATS:
            if x is NAN:
                return value(1 << (length(to) - 1), to) if length(to) == 64 or source == "f64" else 0
            if x.infinite:
                return fitted((-1) ** x.sign << 70, to) if not x.sign else fitted(-(1 << 70), to)
            return fitted(formats.integer(formats.whole(x, whole)), to)
        x = formats.whole(x, whole) if whole else x
        return result(x, to, mods if to == "f32" else [m for m in mods if m != "ftz"])

    return from_float if source in FORMATS else from_integer


def fitted(n: int, type: str) -> int:
    least, most = (
        (-(1 << (length(type) - 1)), (1 << (length(type) - 1)) - 1) if type[0] == "s" else (0, (1 << length(type)) - 1)
    )
    return min(max(n, least), most)


def packing_conversion(mods: list[str], types: list[str]) -> Callable[..., int]:
    """Of two numbers into one register, the first one being the upper."""
    small = types[0][:-2]

    def from_floats(*given: int) -> int:
        if types[1] == "f32":
            numbers = [decode(each, F32) for each in given]
        else:
            numbers = [
                decode(given[0] >> 16, FORMATS[types[1][:-2]]),
                decode(given[0] & 0xFFFF, FORMATS[types[1][:-2]]),
            ]
        numbers = [not_negative(x) if "relu" in mods else x for x in numbers]
        way = "rz" if "rz" in mods else "rn"
        f = FORMATS[small]
        upper, lower = (0x7F if x is NAN and f.bits == 8 else encode(x, f, way, "satfinite" in mods) for x in numbers)
        return upper << f.bits | lower

    def from_bytes(a: int) -> int:
        f = FORMATS[types[1][:-2]]
        upper, lower = (decode(each, f) for each in (a >> 8, a & 255))
        upper, lower = (not_negative(x) if "relu" in mods else x for x in (upper, lower))
        return encode(upper, F16) << 16 | encode(lower, F16)

    return from_bytes if types[1] in ("e4m3x2", "e5m2x2") else from_floats


def to_tf32(mods: list[str], types: list[str]) -> Callable[..., int]:
    f = formats.Format(10, 8)

    def one(a: int) -> int:
        x = decode(a, F32)
        x = not_negative(x) if "relu" in mods else x
        way = next(m for m in mods if m in ("rna", "rn", "rz"))
        return 0x7FFF_FFFF if x is NAN else encode(x, f, way) << 13

    return one
