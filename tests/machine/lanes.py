"""Operands that are worth trying, what is expected of them, and what functions of C make of them.

Rows are of unsigned integers, 32 lanes each: bits are compared, of NaN too.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.launch.machine.families.spelling import C_TYPES
from jaxpr2triton.launch.machine.operations import operation
from tests.machine.formats import BF16, F16, F32, F64, Format
from tests.machine.reference import reference

LANES, WARPS = 32, 24
DTYPES = {"u16": np.uint16, "s16": np.uint16, "u32": np.uint32, "s32": np.uint32, "f32": np.uint32}
DTYPES |= {"u64": np.uint64, "s64": np.uint64, "f64": np.uint64}


def float_bits(f: Format) -> list[int]:
    """Signed zeros, denormals, ones, halves, ties, the largest, infinity, NaNs."""
    one = (f.infinity >> f.fraction) // 2 << f.fraction
    step = 1 << f.fraction
    found = [0, 1, 2, step // 2, step - 1, step, step + 1, one - step, one - 1, one, one + 1, one + 2, one + step // 2]
    found += [one + step, one + step + step // 4, one + 5 * step // 2, f.infinity - 1, f.infinity - 2, f.infinity]
    found += [f.infinity + 1, f.infinity + step // 2, f.one_nan, one - 2 * step, one - 3 * step]
    found += [step << i for i in range(f.exponent)]
    return [x | sign << (f.bits - 1) for x in found for sign in (0, 1)]


def _numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


F32_TIES = _numbers("""
    3f808000 3f818000 3f801000 3f803000 3f801001 477ff000 477fefff 33000000 33000001 43dfffff 43e80000 47600000
    47680000 4f000000 4effffff 5f000000 5f7fffff 4f800000 437f8000 43000000 42ff0000 46ffff00 477fff80 3f000000
    40200000 40600000 7e800001 7f000000 7effffff 7f7f8000 3b000000 3c600000 38800000 37800000 3a800001 42fc0000
    7f7f0000 00008000 00018000 00010000 43000001 47000000 46fffe00 3fc90fdb 49742408 7e800000 4788b800 43160000
    43150000 430c0000 42fe0000 447a0000 c2fd0000
""")
F64_TIES = _numbers("""
    3ff0000010000000 3ff0000030000000 3ff0000010000001 47effffff0000000 47efffffefffffff 3690000000000000
    3690000000000001 36a8000000000000 41dfffffffc00000 41dfffffffe00000 41efffffffe00000 43e0000000000000
    43efffffffffffff 43f0000000000000 43dfffffffffffff 40efffe000000000 40dfffc000000000 3fe0000000000000
    4004000000000000 3ff8000000000000 3ff0040000000000 3ff0010000000000 3ff0010000000001 7fe0000000000000
    0010000000000001 3fe0000000000001 3fdfffffffffffff 405fdfffffffffff 40f1170000000000 36a0000000000001
""")
# 2 to the power of minus this is a denormal, or just none
POWERS = {"f16": _numbers("4b80 4c00 4e00 4d80"), "bf16": _numbers("42fc 42fe 4302 4305 42be")}
INTEGERS = _numbers("""
    0 1 2 3 4 5 7 8 9 f 10 11 18 1e 1f 20 21 28 3f 40 41 64 7f 80 81 c8 ff 100 101 3210 5410 7632 ba98 fedc 7fff
    8000 8001 ffff 10000 e8 96 ca
""")
WIDE = _numbers("""
    7fffffff 80000000 80000001 ffffffff ffffff80 ffffff7f ffff7fff ffff8000 01010101 00ff00ff 12345678 01000001
""")


@functools.cache
def pool(type: str) -> tuple[int, ...]:
    """Bits that a register of a type may hold."""
    match type:
        case "pred":
            return (0, 1)
        case "f32":
            both = [x | sign << 31 for x in F32_TIES for sign in (0, 1)]
            return tuple(float_bits(F32) + both)
        case "f64":
            both = [x | sign << 63 for x in F64_TIES for sign in (0, 1)]
            return tuple(float_bits(F64) + both)
        case "f16" | "bf16":
            powers = [x | sign << 15 for x in POWERS[type] for sign in (0, 1)]
            return tuple(float_bits(F16 if type == "f16" else BF16) + powers)
        case "f16x2" | "bf16x2" | "f32x2" | "s16x2" | "u16x2":
            part = pool(type[:-2])
            size = 32 if type == "f32x2" else 16
            mixed = part[:]
            draw = random.Random(type)
            return tuple(x | draw.choice(mixed) << size for x in mixed)
    size = int(type[1:])
    wide = (
        [*WIDE, *(x << 32 | y for x in WIDE for y in (0, 1, 0x80000000, 0xFFFFFF7F, 0xFFFFFFFF))]
        if size == 64
        else WIDE
    )
    numbers = INTEGERS + (wide if size > 16 else [0xFF7F, 0xFF80, 0xFFFE])
    return tuple(dict.fromkeys(n % (1 << size) for n in numbers))


def bits_in(type: str) -> int:
    return 1 if type == "pred" else DTYPES[C_TYPES[type]](0).itemsize * 8


@functools.cache
def operands_of(opcode: str) -> tuple[np.ndarray, ...]:
    """Rows for each operand: all special values beside each other, or as many as there is room for, and random ones."""
    types = operation(opcode).operands
    draw = random.Random(opcode)
    count = WARPS * LANES
    special = list(itertools.islice(itertools.product(*map(pool, types)), 100_000)) if len(types) < 3 else []
    if not special or len(special) > count * 2 // 3:
        special = [tuple(draw.choice(pool(t)) for t in types) for _ in range(count * 2 // 3)]
    if len(types) > 1 and types[0] in CORE_OF:
        core = itertools.product(CORE_OF[types[0]], repeat=len(types))
        alike = [tuple(x if t == types[0] else x & 1 for x, t in zip(each, types)) for each in core]
        special[: len(alike)] = alike
    lanes = special + [_drawn(draw, types, i) for i in range(count - len(special))]
    dtypes = [DTYPES[C_TYPES[t]] for t in types]
    return tuple(np.array(column, dtype).reshape(WARPS, LANES) for column, dtype in zip(zip(*lanes), dtypes))


def _drawn(draw: random.Random, types: Sequence[str], turn: int) -> tuple[int, ...]:
    """Any bits, numbers of like size, which meet in sums, or a special value among them."""
    found = [draw.getrandbits(bits_in(t)) for t in types]
    if turn % 3 and types[0] in NEAR:
        keep, one = NEAR[types[0]]
        found = [one | draw.getrandbits(keep) if t == types[0] else x for x, t in zip(found, types)]
        if len(types) == 3 and len(set(types)) == 1 and turn % 2:
            found[2] |= 1 << (bits_in(types[0]) - 1)
    if turn % 2:
        found = [draw.choice(AMOUNTS) if t == "b32" and i else x for i, (t, x) in enumerate(zip(types, found))]
    if turn % 4 == 0:
        at = draw.randrange(len(types))
        found[at] = draw.choice(pool(types[at]))
    return tuple(found)


AMOUNTS = (0, 1, 7, 30, 31, 32, 33, 62, 63, 64, 65, 255, 256 + 5)  # of shifts, places and lengths
# Bits that are drawn, and the others: numbers between a half and two
NEAR = {"f32": (24, 0x3F000000), "f64": (53, 0x3FE0000000000000), "f16": (12, 0x3800), "bf16": (9, 0x3F00)}


def _core(f: Format) -> list[int]:
    """All are tried together: zeros, one, infinity, NaN, the largest number, and one whose square is larger."""
    one = (f.infinity >> f.fraction) // 2 << f.fraction
    negative = 1 << (f.bits - 1)
    return [
        0,
        negative,
        negative | one,
        f.infinity,
        f.infinity + 1,
        one + one // 2 + (1 << f.fraction),
        negative | (f.infinity - 1),
    ]


CORE_OF = {"f16": _core(F16), "bf16": _core(BF16), "f32": _core(F32), "f64": _core(F64)}


@dataclass(frozen=True)
class Expected:
    results: tuple[np.ndarray, ...]
    carry: np.ndarray


def carries_of(opcode: str) -> np.ndarray:
    return np.random.default_rng(len(opcode)).integers(0, 2, (WARPS, LANES), np.uint32)


@functools.cache
def expected(opcode: str) -> Expected:
    lane = reference(opcode)
    if lane is None:
        raise KeyError(f"no reference for {opcode}")
    columns = [row.ravel().tolist() for row in operands_of(opcode)]
    found = [lane(given, carry) for given, carry in zip(zip(*columns), carries_of(opcode).ravel().tolist())]
    types = operation(opcode).results
    results = []
    for i, type in enumerate(types):
        bits = 32 if type == "pred" else bits_in(type)
        values = [one[0][i] & ((1 << bits) - 1) for one in found]
        results.append(np.array(values, DTYPES[C_TYPES[type]]).reshape(WARPS, LANES))
    return Expected(tuple(results), np.array([one[1] for one in found], np.uint32).reshape(WARPS, LANES))


POINTERS = ctypes.c_void_p * 4
PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)


def computed(opcode: str, address: int) -> Expected:
    """By the function of C, warp for warp."""
    function = PROTOTYPE(address)
    operands, carry = operands_of(opcode), carries_of(opcode)
    results = [np.full((WARPS, LANES), 0xA5, DTYPES[C_TYPES[t]]) for t in operation(opcode).results]
    for warp in range(WARPS):
        given = POINTERS(*(row[warp].ctypes.data for row in operands))
        made = POINTERS(*(row[warp].ctypes.data for row in results))
        function(made, given, carry[warp].ctypes.data)
    return Expected(tuple(results), carry)


def differences(opcode: str, address: int) -> list[str]:
    """The first lanes that are not as expected, in words."""
    right, found = expected(opcode), computed(opcode, address)
    wrong = np.zeros((WARPS, LANES), bool)
    for a, b in zip((*right.results, right.carry), (*found.results, found.carry)):
        wrong |= a != b
    said = []
    for warp, lane in np.argwhere(wrong)[:5]:
        given = ", ".join(f"{int(row[warp, lane]):#x}" for row in operands_of(opcode))
        is_, should = (
            " ".join(f"{int(row[warp, lane]):#x}" for row in (*each.results, each.carry)) for each in (found, right)
        )
        said.append(f"{opcode} of {given}: {is_}, expected {should}")
    return said
