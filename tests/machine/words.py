"""Words of opcodes, and bits as numbers of a type, for what is expected of the machine's operations."""

from __future__ import annotations

from tests.machine.formats import FORMATS, NAN, Number, Real, decode, encode, is_zero, order

ROUNDINGS = ("rn", "rz", "rm", "rp")
WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
TYPES = ("pred", "f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2", "f32x2", "s16x2", "u16x2", "e4m3x2", "e5m2x2")
TYPES += tuple(kind + size for kind in "bus" for size in ("8", "16", "32", "64"))


def length(type: str) -> int:
    return 32 if type == "pred" else int("".join(c for c in type.split("x")[0][type.startswith("b") :] if c.isdigit()))


def cut(n: int, type: str) -> int:
    return n & ((1 << length(type)) - 1)


def value(bits: int, type: str) -> int:
    """An integer, with its sign."""
    n = cut(bits, type)
    return n - (1 << length(type)) if type[0] == "s" and n >> (length(type) - 1) else n


def number(bits: int, type: str, mods: list[str]) -> Real:
    x = decode(bits, FORMATS[type])
    return flushed(x, type) if "ftz" in mods and type in ("f32", "f16", "bf16") else x


def flushed(x: Real, type: str) -> Real:
    f = FORMATS[type]
    small = x is not NAN and not x.infinite and x.count.bit_length() - 1 + x.power < f.lowest
    return Number(x.sign, 0) if small else x


def result(x: Real, type: str, mods: list[str]) -> int:
    if "sat" in mods:
        x = saturated(x)
    if "relu" in mods:
        x = not_negative(x)
    way = next((m for m in mods if m in ROUNDINGS), "rn")
    bits = encode(x, FORMATS[type], way)
    if "ftz" in mods and type in ("f32", "f16", "bf16"):
        exact = flushed(decode(bits, FORMATS[type]), type)
        bits = encode(exact, FORMATS[type])
    return bits


def saturated(x: Real) -> Real:
    if x is NAN or x.sign or is_zero(x):
        return Number(0, 0)
    return x if order(x, Number(0, 1)) < 0 else Number(0, 1)


def not_negative(x: Real) -> Real:
    return Number(0, 0) if x is not NAN and (x.sign or is_zero(x)) else x
