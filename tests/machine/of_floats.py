"""What operations of floats give, by exact numbers that are rounded once."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tests.machine import formats
from tests.machine.formats import (
    F32,
    F64,
    FORMATS,
    NAN,
    Number,
    Real,
    decode,
    encode,
    is_zero,
    negative,
    of_float,
    order,
)
from tests.machine.words import ROUNDINGS, flushed, length, number, result


def float_arithmetic(name: str, mods: list[str], type: str) -> Callable[..., int]:
    way = next((m for m in mods if m in ROUNDINGS), "rn")

    def one(*given: int) -> int:
        x, *rest = (number(each, type, mods) for each in given)
        match name:
            case "add":
                exact = formats.plus(x, rest[0], way)
            case "sub":
                exact = formats.plus(x, negative(rest[0]), way)
            case "mul":
                exact = formats.times(x, rest[0])
            case "fma":
                exact = formats.plus(formats.times(x, rest[0]), rest[1], way)
            case "div":
                exact = formats.over(x, rest[0])
            case "rcp":
                exact = formats.over(Number(0, 1), x)
            case "sqrt":
                exact = formats.root(x)
        return result(exact, type, mods)

    return one


def float_extremes(name: str, mods: list[str], type: str) -> Callable[..., int]:
    def one(a: int, b: int) -> int:
        x, y = number(a, type, mods), number(b, type, mods)
        sign = (a ^ b) >> (length(type) - 1)
        if x is NAN and y is NAN or ("NaN" in mods and (x is NAN or y is NAN)):
            return FORMATS[type].one_nan
        if "abs" in mods:
            x, y = (each and Number(0, each.count, each.power, each.infinite) for each in (x, y))
        if x is NAN or y is NAN:
            found = y if x is NAN else x
        else:
            less = order(x, y) < 0 or (order(x, y) == 0 and x.sign > y.sign)
            found = x if less == (name == "min") else y
        bits = encode(found, FORMATS[type])
        return bits | sign << (length(type) - 1) if "xorsign" in mods else bits

    return one


def float_sign(name: str, mods: list[str], type: str) -> Callable[..., int]:
    top = 1 << (length(type) - 1)

    def one(a: int, b: int = 0) -> int:
        x = number(a, type, mods)
        if is_zero(x):
            a = x.sign * top
        return {"neg": a ^ top, "abs": a & ~top, "copysign": (b & ~top) | (a & top)}[name]

    return one


def float_test(name: str, mods: list[str], type: str) -> Callable[..., int]:
    f = FORMATS[type]

    def one(a: int) -> int:
        x = decode(a, f)
        finite = x is not NAN and not x.infinite
        small = finite and x.count.bit_length() - 1 + x.power < f.lowest
        return {
            "finite": finite,
            "infinite": x is not NAN and x.infinite,
            "number": x is not NAN,
            "notanumber": x is NAN,
            "normal": finite and not small,
            "subnormal": small and x.count != 0,
        }[mods[0]]

    return one


def python_float(x: Real) -> float:
    return struct.unpack("<d", struct.pack("<Q", encode(x, F64)))[0]


def function_of_f32(name: str, x: float) -> float:
    """With the limits that Python raises errors for."""
    if x != x:
        return x
    infinite = x in (math.inf, -math.inf)
    match name:
        case "ex2":
            return math.inf if x >= 1024 else 0.0 if x <= -1100 else math.exp2(x)
        case "lg2":
            return -math.inf if x == 0 else math.nan if x < 0 else math.log2(x)
        case "sin" | "cos":
            return math.nan if infinite else getattr(math, name)(x)
        case "tanh":
            return math.tanh(x)
        case "rsqrt":
            return math.copysign(math.inf, x) if x == 0 else math.nan if x < 0 else 1 / math.sqrt(x)
    raise KeyError(name)


def approximation(name: str, mods: list[str], type: str) -> Callable[..., int]:
    if type == "f64":
        return gross_approximation(name, mods)
    if name in ("rcp", "sqrt") or "full" in mods:
        return float_arithmetic(name, mods, type)

    def quotient(a: int, b: int) -> int:
        x, y = number(a, type, mods), number(b, type, mods)
        if y is not NAN and not y.infinite and order(Number(0, y.count, y.power), Number(0, 1, 126)) > 0:
            zero = Number(y.sign, 0)
            return result(formats.times(x, zero), type, mods)
        return result(formats.over(x, y), type, mods)

    def one(a: int) -> int:
        x = of_float(function_of_f32(name, python_float(number(a, type, mods))))
        return result(decode(encode(x, F32), F32) if type != "f32" else x, type, mods)

    return quotient if name == "div" else one


def gross_approximation(name: str, mods: list[str]) -> Callable[..., int]:
    """Of f64: by the upper halves, with .ftz."""
    upper = 0xFFFF_FFFF_0000_0000 if "ftz" in mods else 0xFFFF_FFFF_FFFF_FFFF

    def one(a: int) -> int:
        if decode(a, F64) is NAN:
            return F64.one_nan
        x = decode(a & upper, F64)
        x = flushed(x, "f64") if "ftz" in mods else x
        exact = x if name == "rcp" else formats.root(x)
        if name == "rsqrt" and is_zero(x):
            return encode(Number(x.sign, 0, 0, infinite=True), F64)
        exact = formats.over(Number(0, 1), exact)
        found = decode(encode(exact, F64), F64)
        if found is NAN:
            return F64.one_nan
        found = flushed(found, "f64") if "ftz" in mods else found
        return encode(found, F64) & upper

    return one
