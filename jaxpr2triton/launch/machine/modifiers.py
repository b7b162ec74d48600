"""What words in an opcode stand for: numbers, spaces of memory, reductions, and what accesses order."""

from __future__ import annotations

from jaxpr2triton.launch.machine.layout import LANES, Number, Order, Reduces, Space
from jaxpr2triton.launch.machine.ptx import Instruction

FLOATS = {
    **{"f16": Number.F16, "bf16": Number.BF16, "f32": Number.F32, "f64": Number.F64},
    **{"f16x2": Number.F16_PAIR, "bf16x2": Number.BF16_PAIR},
}
NUMBERS = {
    **FLOATS,
    **dict.fromkeys(("s8", "s16", "s32", "s64"), Number.SIGNED),
    **dict.fromkeys(("u8", "u16", "u32", "u64"), Number.UNSIGNED),
}
ELEMENTS = {
    **{"f16": Number.F16, "bf16": Number.BF16, "tf32": Number.TF32, "f32": Number.F32, "f64": Number.F64},
    **{"s8": Number.SIGNED, "u8": Number.UNSIGNED, "s32": Number.SIGNED},
}
FACTORS = {**ELEMENTS, "e4m3": Number.E4M3, "e5m2": Number.E5M2}  # of warpgroups
BITS = {"e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s32": 32}
REDUCTIONS = {
    **{
        "add": Reduces.ADD,
        "min": Reduces.MIN,
        "max": Reduces.MAX,
        "and": Reduces.AND,
        "or": Reduces.OR,
        "xor": Reduces.XOR,
    },
    **{"exch": Reduces.EXCHANGE, "cas": Reduces.COMPARE, "inc": Reduces.INCREMENT, "dec": Reduces.DECREMENT},
}
_ORDERS = {
    "relaxed": Order.STRONG,
    "acquire": Order.STRONG | Order.ACQUIRE,
    "release": Order.STRONG | Order.RELEASE,
    "acq_rel": Order.STRONG | Order.ACQUIRE | Order.RELEASE,
}


def space_of(of: Instruction) -> Space:
    spaces = {"global": Space.GLOBAL, "shared": Space.SHARED, "local": Space.LOCAL, "const": Space.GLOBAL}
    return next(
        (spaces[word.partition("::")[0]] for word in of.modifiers if word.partition("::")[0] in spaces), Space.GENERIC
    )


def order_of(of: Instruction) -> Order:
    """What stays within a program, or a cluster of them, orders nothing between programs."""
    if space_of(of) not in (Space.GLOBAL, Space.GENERIC) or {"cta", "cluster"} & set(of.modifiers):
        return Order(0)
    return next((_ORDERS[word] for word in of.modifiers if word in _ORDERS), Order(0))


def fragments(m: int, k: int, total: str, element: str) -> list[int]:
    """How many registers of a lane hold its parts of the matrices d, a, b and c."""
    lengths = ((m * 8, total), (m * k, element), (k * 8, element), (m * 8, total))
    return [length * BITS[word] // (LANES * max(32, BITS[word])) for length, word in lengths]
