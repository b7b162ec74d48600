"""How much memory the lanes of a warp ask for together: those at one place, or beside each other, share what is moved.

    SHF.R.U32.HI R4, RZ, 0x4, R0           R0 is the lane: 16 lanes each have one number
    IMAD.WIDE R2, R4, 0x4, R6
    LDG.E R8, desc[UR4][R2.64]             two numbers beside each other: one sector of 32 bytes, not 128 bytes

What the lanes of the first warp have in their registers is followed through whole numbers, once from the first to the
last instruction. Each array is at place 0, and so is a number that all lanes share and that is not known. Where that
leads nowhere, as where places are read from memory, and where lanes are far apart, all lanes have places of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from jaxpr2triton import hardware
from jaxpr2triton.launch.cycles.latencies import TRAFFIC
from jaxpr2triton.launch.cycles.sass import Instruction

_OF_ALL = ("U", "R2U", "S2U", "LDCU")  # whose results are the same for all lanes, whatever they are
SECTOR = 4 * hardware.SECTOR  # bytes that memory moves at least
_BITS = 32
_ALL = (1 << _BITS) - 1
_REGISTER = re.compile(r"(-|~)?(U?R(?:\d+|Z))(?:\.reuse)?(?:\.(?:64|H1|B1))?")
_NUMBER = re.compile(r"-?0x[0-9a-f]+|-?\d+")
_ADDRESS = re.compile(r"\[(U?R\d+)(?:\.U32|\.64|\.X\d+)*(?:\+(U?R\d+))?(?:\+(-?0x[0-9a-f]+))?\]")
_PREDICATE = re.compile(r"!?U?P(?:\d|T)")
_OF_PREDICATES = ("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "FCHK")

Lanes = np.ndarray  # what each lane has in a register, without a sign
Known = dict[str, Lanes]


def moved_by(code: Iterable[Instruction], lanes: int) -> dict[int, int]:
    """The bytes that a warp moves with each instruction that reads or writes memory, where that is known."""
    known: Known = {}
    found: dict[int, int] = {}
    for each in code:
        if each.kind in TRAFFIC:
            place = _place(each, known, lanes)
            if place is not None:
                first, last = place // SECTOR, (place + each.width - 1) // SECTOR
                sectors = np.unique(np.concatenate([first, last])).size
                found[each.address] = min(sectors * SECTOR, lanes * each.width)
        _follow(each, known, lanes)
    return found


def _place(each: Instruction, known: Known, lanes: int) -> Lanes | None:
    address = _ADDRESS.findall(each.operands)
    if not address:
        return None
    register, other, constant = address[-1]
    place = np.full(lanes, int(constant or "0", 16), np.int64)
    for part in filter(None, (register, other)):
        if part not in known:
            return None
        place = place + known[part]
    return place & _ALL


def _follow(each: Instruction, known: Known, lanes: int) -> None:
    """The result of an instruction; what it is not known to be is forgotten."""
    if not each.has_result or each.kind.removeprefix("U") in _OF_PREDICATES:
        return
    words = [word.strip() for word in each.operands.split(",")]
    while words and _PREDICATE.fullmatch(words[0]):
        words.pop(0)
    result = _REGISTER.fullmatch(words[0]) if words else None
    if result is None:
        return
    value = _made(each, words[1:], known, lanes)
    for register in _written(each, result[2]):
        known.pop(register, None)
    if value is None and each.kind.startswith(_OF_ALL) and result[2].startswith("U"):
        value = np.zeros(lanes, np.int64)
    if value is not None:
        known[result[2]] = value & _ALL


def _made(each: Instruction, words: Sequence[str], known: Known, lanes: int) -> Lanes | None:
    match each.kind.removeprefix("U"):
        case "S2R" | "S2UR" if words[0] == "SR_TID.X":
            return np.arange(lanes)
        case "S2R" | "S2UR":
            return np.zeros(lanes, np.int64) if "CTAID" in words[0] else None
        case "LDC" | "LDCU":  # where an array begins
            return np.zeros(lanes, np.int64)
        case "HFMA2":
            halves = _halves(words)
            return None if halves is None else np.full(lanes, halves, np.int64)
        case kind if kind in _COMPUTED and not _is_high(each):
            operands = [_value(word, known, lanes) for word in words if not _PREDICATE.fullmatch(word)]
            found = [operand for operand in operands if operand is not None]
            return _COMPUTED[kind](each.name.split(".")[1:], found) if len(found) == len(operands) else None
    return None


def _is_high(each: Instruction) -> bool:
    """Whether a result is the upper half of a place, which is the same for all lanes."""
    return "X" in each.name.split(".")[1:]


def _written(each: Instruction, name: str) -> list[str]:
    if name.endswith("Z"):
        return []
    width = each.width // 4 if each.kind.startswith("LD") else 2 if {"WIDE", "64"} & set(each.name.split(".")) else 1
    stem, number = name.rstrip("0123456789"), int(name.lstrip("UR"))
    return [f"{stem}{number + n}" for n in range(max(width, 1))]


def _value(word: str, known: Mapping[str, Lanes], lanes: int) -> Lanes | None:
    if word.startswith(("c[", "cx[")):  # where an array begins
        return np.zeros(lanes, np.int64)
    if _NUMBER.fullmatch(word):
        return np.full(lanes, int(word, 0) & _ALL, np.int64)
    register = _REGISTER.fullmatch(word)
    if register is None:
        return None
    value = np.zeros(lanes, np.int64) if register[2].endswith("Z") else known.get(register[2])
    if value is None or register[1] is None:
        return value
    return (-value if register[1] == "-" else ~value) & _ALL


def _halves(words: Sequence[str]) -> int | None:
    """A number, as two of 16 bits that nothing is multiplied with: HFMA2.MMA R2, -RZ, RZ, 0, 6.1e-05."""
    factors, numbers = words[:2], words[2:4]
    if any(not factor.endswith("RZ") for factor in factors) or len(numbers) < 2:
        return None
    try:
        high, low = (int(np.float16(number).view(np.uint16)) for number in numbers)
    except ValueError:
        return None
    return high << 16 | low


def _signed(value: Lanes) -> Lanes:
    return value - ((value >> (_BITS - 1)) << _BITS)


def _sum(_: Sequence[str], operands: Sequence[Lanes]) -> Lanes:
    return np.sum(operands, axis=0)


def _product(parts: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    one, other, added = operands[:3]
    if "HI" in parts:
        wide = (x.astype(object) if "U32" in parts else _signed(x) for x in (one, other))
        return np.asarray(math.prod(wide) >> _BITS, np.int64) + added
    return one * other + added


def _scaled(parts: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    *values, by = operands
    if "HI" in parts:
        one, added, high = values if len(values) == 3 else (*values, np.zeros_like(by))
        return ((high << by) | (one >> (_BITS - by))) + added
    one, added = values[:2]
    return (one << by) + added


def _shifted(parts: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    low, by, high = operands[:3]
    if "L" in parts:
        return low << by if "HI" not in parts else None
    if "HI" not in parts:
        return None
    return (_signed(high) if "S32" in parts else high) >> by


def _bits(parts: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    """By a table of what becomes of three bits."""
    one, two, three, rows = operands[:4]
    number = int(rows[0])
    sides = [(one, two, three, number >> n & 1, n) for n in range(8)]
    found = np.zeros_like(one)
    for first, second, third, is_set, n in sides:
        if is_set:
            first, second, third = (
                x if n >> place & 1 else ~x for x, place in ((first, 2), (second, 1), (third, 0))
            )
            found |= first & second & third
    return found


def _extended(parts: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    value, width = operands[:2]
    low = value & ((1 << width) - 1)
    return low if "U32" in parts else low - ((low >> (width - 1)) << width)


def _copied(_: Sequence[str], operands: Sequence[Lanes]) -> Lanes | None:
    return operands[0]


_COMPUTED: Mapping[str, Callable[[Sequence[str], Sequence[Lanes]], Lanes | None]] = {
    **dict.fromkeys(("IADD3", "IADD", "VIADD"), _sum),
    **dict.fromkeys(("MOV", "R2UR", "CS2R"), _copied),
    "IMAD": _product,
    "LEA": _scaled,
    "SHF": _shifted,
    "LOP3": _bits,
    "SGXT": _extended,
}
