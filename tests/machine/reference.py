"""What each opcode computes, in Python's integers and by the words of the manual: nothing of it is made from the C.

`reference("add.cc.u32")` is a function of one lane's operands, as bits, and its carry, to the results and the carry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tests.machine.formats import (
    F32,
    FORMATS,
    NAN,
    decode,
    encode,
    is_zero,
    order,
)
from tests.machine.of_conversions import conversion, packing_conversion, to_tf32
from tests.machine.of_floats import (
    approximation,
    float_arithmetic,
    float_extremes,
    float_sign,
    float_test,
)
from tests.machine.of_integers import (
    bits_of,
    dot,
    field,
    funnel,
    integer_arithmetic,
    shift,
    with_carry,
)
from tests.machine.words import TYPES, cut, length, number, value

Lane = Callable[[tuple[int, ...], int], tuple[tuple[int, ...], int]]

Family = Callable[[str, list[str], str], Callable[..., int]]


def comparison(mods: list[str], type: str) -> Callable[[int, int], bool]:
    test = mods[0]

    def one(a: int, b: int) -> bool:
        if type in FORMATS:
            x, y = number(a, type, mods), number(b, type, mods)
            unordered = x is NAN or y is NAN
            if test in ("num", "nan") or unordered:
                return unordered == (test == "nan") if test in ("num", "nan") else test.endswith("u") and len(test) == 3
            side = order(x, y)
        else:
            p, q = value(a, type), value(b, type)
            side = (p > q) - (p < q)
        plain = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(test, test[:2])
        return {"eq": side == 0, "ne": side != 0, "lt": side < 0, "le": side <= 0, "gt": side > 0, "ge": side >= 0}[
            plain
        ]

    return one


def predicate(name: str, mods: list[str], type: str) -> Callable[..., int]:
    compared = comparison(mods, type)
    with_third = next((m for m in mods[1:] if m in ("and", "or", "xor")), "")

    def one(a: int, b: int, c: int = 0) -> int:
        found = int(compared(a, b))
        return {"": found, "and": found & c, "or": found | c, "xor": found ^ c}[with_third]

    return one


def comparison_as_number(mods: list[str], types: list[str]) -> Callable[..., int]:
    compared = comparison(mods, types[1])
    true = 0x3F80_0000 if types[0] == "f32" else 0xFFFF_FFFF
    return lambda a, b: true if compared(a, b) else 0


def choice_by_sign(mods: list[str], types: list[str]) -> Callable[..., int]:
    def one(a: int, b: int, c: int) -> int:
        if types[1] == "s32":
            return a if value(c, "s32") >= 0 else b
        x = number(c, "f32", mods)
        return a if x is not NAN and (not x.sign or is_zero(x)) else b

    return one


# ---- the opcode


@functools.cache
def reference(opcode: str) -> Lane | None:
    name, *parts = opcode.split(".")
    types = [part for part in parts if part in TYPES]
    mods = [part for part in parts if part not in TYPES]
    if name in ("addc", "subc", "madc") or "cc" in mods:
        return with_carry(name, mods, types[0])
    if name in ("pack", "unpack"):
        return vector_move(name, types[0], int(mods[0]))
    if types[-1] in ("f16x2", "bf16x2", "f32x2", "s16x2", "u16x2") and name != "cvt":
        return both_halves(opcode, types[-1])
    one = _of_types(name, mods, types) if len(types) > 1 else _of_type(name, mods, types[0])
    return one and (lambda given, carry: ((one(*given),), carry))


def _of_type(name: str, mods: list[str], type: str) -> Callable[..., int] | None:
    is_float = type in FORMATS
    families: list[tuple[str, Family]] = [
        ("setp", predicate),
        ("shl shr", shift),
        ("shf", funnel),
        ("bfe bfi", field),
        ("and or xor not cnot lop3 prmt popc clz brev bfind bmsk szext", bits_of),
        ("selp mov cvta", lambda *_: lambda a, b=0, c=1: a if c else b),
    ]
    if is_float:
        known = "rcp rsqrt sqrt div ex2 lg2 sin cos tanh" if {"approx", "full"} & set(mods) else ""
        families += [
            (known, approximation),
            ("add sub mul fma div rcp sqrt", float_arithmetic),
            ("min max", float_extremes),
            ("neg abs copysign", float_sign),
            ("testp", float_test),
        ]
    else:
        families += [("add sub mul mad div rem neg abs min max sad", integer_arithmetic)]
    return next((family(name, mods, type) for names, family in families if name in names.split()), None)


def _of_types(name: str, mods: list[str], types: list[str]) -> Callable[..., int] | None:
    match name:
        case "cvt" if types[0] == "tf32":
            return to_tf32(mods, types)
        case "cvt" if types[0].endswith("x2"):
            return packing_conversion(mods, types)
        case "cvt":
            return conversion(mods, types)
        case "set":
            return comparison_as_number(mods, types)
        case "slct":
            return choice_by_sign(mods, types)
        case "dp4a" | "dp2a":
            return dot(name, mods, types)
        case "add" | "sub" | "fma":
            return mixed(name, mods, types)
    return None


def mixed(name: str, mods: list[str], types: list[str]) -> Callable[..., int]:
    halves = 2 if name == "fma" else 1
    inner = float_arithmetic(name, mods, "f32")
    return lambda *given: inner(
        *(encode(decode(x, FORMATS[types[1]]), F32) if i < halves else x for i, x in enumerate(given))
    )


def vector_move(name: str, type: str, count: int) -> Lane:
    size = length(type) // count
    if name == "pack":
        return lambda given, carry: ((sum(x << i * size for i, x in enumerate(given)),), carry)
    return lambda given, carry: (tuple(given[0] >> i * size & ((1 << size) - 1) for i in range(count)), carry)


def both_halves(opcode: str, type: str) -> Lane:
    part = type[:-2]
    size = length(part)
    inner = reference(opcode.replace(type, part))
    predicates = opcode.startswith("setp")

    def one(given: tuple[int, ...], carry: int) -> tuple[tuple[int, ...], int]:
        values = []
        for half in (0, size):
            parts = tuple(x if predicates and i == 2 else cut(x >> half, part) for i, x in enumerate(given))
            values.append(inner(parts, carry)[0][0])
        low, high = values
        return ((low, high) if predicates else (cut(low, part) | cut(high, part) << size,)), carry

    return one
