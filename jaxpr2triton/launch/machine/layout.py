"""What Python and C both know: the words for kinds of instructions and findings, and the structures in memory.

They are written once, here; `header()` says them in C.
"""

from __future__ import annotations

import ctypes as c
from enum import IntEnum, IntFlag
from typing import Any

LANES = 32
WARPGROUP = 128  # threads
SHARED_WINDOW = 1 << 39  # generic addresses of shared memory begin here
LOCAL_WINDOW = 1 << 38
BUFFER_SHIFT = 40  # an address in global memory: the number of the buffer plus one, and this many bits inside of it
RESULTS = 8  # registers that one instruction writes, at most
SLOTS = 16  # registers that one instruction names, results first


class Action(IntEnum):
    """What an instruction does; arithmetic is a function of its own for each opcode."""

    ARITHMETIC = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3
    COPY = 4  # cp.async
    COMMIT = 5
    WAIT = 6  # until at most `offset` groups of copies are under way
    BRANCH = 7
    RETURN = 8
    TRAP = 9
    LABEL = 10
    NOTHING = 11
    PROXY_FENCE = 12  # fence.proxy.async
    ASSERTION = 13  # that fails; its operand points to what it says
    BARRIER = 14  # from here on all lanes of the warp have to be there
    WARP_BARRIER = 15
    SHUFFLE = 16
    REDUX = 17
    VOTE = 18
    LOAD_MATRIX = 19
    STORE_MATRIX = 20
    MMA = 21
    PRODUCT = 22  # wgmma; its sums, and its left factor if that is in registers, are a list
    PRODUCT_FENCE = 23
    PRODUCT_COMMIT = 24
    PRODUCT_WAIT = 25  # until at most `offset` groups of products are under way


class Space(IntEnum):
    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    GENERIC = 3  # the address says which


class Order(IntFlag):
    """Of an access to memory: what it orders between programs, and whether it clashes with others like it."""

    STRONG = 1  # atomic for all programs
    ACQUIRE = 2
    RELEASE = 4


class Mixes(IntEnum):
    """How operands with undefined bits make an undefined result."""

    ALL = 0  # one is enough
    CHOICE = 1  # selp: the one that is chosen, and what chooses
    AND = 2  # a defined 0 decides
    OR = 3  # a defined 1 decides


class Reduces(IntEnum):
    """redux, and atomics."""

    ADD = 0
    MIN = 1
    MAX = 2
    AND = 3
    OR = 4
    XOR = 5
    EXCHANGE = 6
    COMPARE = 7
    INCREMENT = 8
    DECREMENT = 9


class Number(IntEnum):
    """What the bits of an operand stand for, where an instruction needs to know."""

    BITS = 0
    SIGNED = 1
    UNSIGNED = 2
    F16 = 3
    BF16 = 4
    F32 = 5
    F64 = 6
    TF32 = 7
    F16_PAIR = 8
    BF16_PAIR = 9
    E4M3 = 10
    E5M2 = 11


class Kind(IntEnum):
    """What the machine finds."""

    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    INPUT_WRITTEN = 3
    RACE_OF_WARPS = 4
    RACE_IN_WARP = 5
    RACE_OF_PROGRAMS = 6
    TWO_VALUES = 7
    UNDEFINED_ADDRESS = 8
    UNDEFINED_CHOICE = 9
    UNDEFINED_STORED = 10
    DIVERGENT_BARRIER = 11
    BARRIER_NOT_REACHED = 12
    STALE_LOAD = 13
    NO_END = 14
    TRAPPED = 15
    ABSENT_LANE = 16
    COPIES_CHOOSE = 17
    COPIES_ADDRESS = 18
    COPIES_STORED = 19
    LANES_DISAGREE = 20
    WARPS_DISAGREE = 21
    REGISTER_UNDER_WAY = 22
    REGISTER_NOT_FENCED = 23
    MEMORY_UNDER_WAY = 24
    MEMORY_NOT_FENCED = 25
    NEVER_COMMITTED = 26
    WARPGROUP_DISAGREES = 27
    ASSERTION_FAILS = 28
    DEADLOCK = 29


class Changes(IntFlag):
    """What wgmma does to its factors before they are multiplied."""

    TRANSPOSED_LEFT = 1
    TRANSPOSED_RIGHT = 2
    NEGATED_LEFT = 4
    NEGATED_RIGHT = 8


class Instruction(c.Structure):
    _fields_ = [
        ("run", c.c_void_p),  # arithmetic: the function of this opcode
        ("offset", c.c_int64),  # of an address; other numbers of other instructions
        ("slots", c.c_int32 * SLOTS),  # where its registers lie: results, then operands
        ("guard", c.c_int32),  # the predicate's register, or -1
        ("rank", c.c_int32),  # lanes that went apart take turns by it
        ("target", c.c_int32),  # of a branch; of cp.async the offset of what it reads; of wgmma where its list begins
        ("action", c.c_uint8),
        ("results", c.c_uint8),
        ("operands", c.c_uint8),
        ("row", c.c_uint8),  # bytes of one lane's result in its register
        ("width", c.c_uint8),  # bytes in memory of each part
        ("parts", c.c_uint8),  # of a vector, or matrices
        ("space", c.c_uint8),
        ("wide", c.c_uint8),  # the address has 64 bits; a product of matrices stops at the largest integer
        ("flags", c.c_uint8),  # of each kind of instruction its own
        ("number", c.c_uint8),  # of arithmetic: what it adds up, if that is floating
        ("mixes", c.c_uint8),
        ("negated", c.c_uint8),  # the guard
        ("control", c.c_uint8),  # a way out of a loop of the kernel's source
        ("equality", c.c_uint8),  # asks whether two values are the same
        ("moves", c.c_uint8),  # only moves bits
        ("reduces", c.c_uint8),
        ("shape", c.c_uint8 * 3),  # of a product of matrices: m, n, k; of wgmma n / 8
        ("right", c.c_uint8),  # of wgmma: what the right factor is made of
        ("total", c.c_uint8),  # … and the sums
        ("order", c.c_uint8),
    ]


class Buffer(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("size", c.c_int64),
        ("cells", c.c_void_p),  # who wrote and read each granule; none where nobody may write
        ("granule", c.c_int32),
        ("writable", c.c_int32),
        ("defined", c.c_int32),  # from the beginning
    ]


class Constant(c.Structure):
    """A register that always holds the same in all lanes."""

    _fields_ = [("value", c.c_uint64), ("slot", c.c_int32), ("width", c.c_int32)]


class Finding(c.Structure):
    _fields_ = [
        ("count", c.c_uint64),
        ("offset", c.c_int64),
        ("kind", c.c_int32),
        ("pc", c.c_int32),
        ("other_pc", c.c_int32),
        ("buffer", c.c_int32),
        ("program", c.c_int32),
        ("warp", c.c_int32),
        ("lane", c.c_int32),
        ("other_program", c.c_int32),  # -1: the same one
        ("other_warp", c.c_int32),
        ("other_lane", c.c_int32),
    ]


class Counts(c.Structure):
    """For each instruction."""

    _fields_ = [
        ("warps", c.c_uint64),  # that executed it
        ("lanes", c.c_uint64),
        ("sectors", c.c_uint64),  # of 32 bytes of global memory, or wavefronts of shared memory
        ("least", c.c_uint64),  # that it could have been
    ]


SPECIAL = (
    *("tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "ntid.x", "ntid.y", "ntid.z"),
    *("nctaid.x", "nctaid.y", "nctaid.z", "laneid", "warpid"),
)


class Machine(c.Structure):
    _fields_ = [
        ("code", c.POINTER(Instruction)),
        ("constants", c.POINTER(Constant)),
        ("buffers", c.POINTER(Buffer)),
        ("findings", c.POINTER(Finding)),
        ("counts", c.POINTER(Counts)),
        ("lists", c.POINTER(c.c_int32)),  # of registers
        ("budget", c.c_uint64),  # instructions of warps
        ("executed", c.c_uint64),
        ("seed", c.c_uint64),
        ("instructions", c.c_int32),
        ("controls", c.c_int32),  # ways out of loops of the source; each has its number as its first slot
        ("constant_count", c.c_int32),
        ("buffer_count", c.c_int32),
        ("file", c.c_int32),  # bytes of all registers of a warp
        ("threads", c.c_int32 * 3),
        ("grid", c.c_int32 * 3),
        ("programs", c.c_int32),  # of all of it
        ("first", c.c_int32),  # programs: from the first one up to the end, every so many
        ("end", c.c_int32),
        ("step", c.c_int32),
        ("resident", c.c_int32),  # programs that take turns; 0: one after the other
        ("turn", c.c_int32),  # instructions that a program executes in one, at most
        ("patience", c.c_int32),  # turns of every program in which nothing changes
        ("shared", c.c_int32),  # bytes
        ("shared_granule", c.c_int32),
        ("local", c.c_int32),  # bytes of each lane
        ("check", c.c_int32),
        ("count", c.c_int32),
        ("quantum", c.c_int32),  # instructions until another warp may go on; 0: only at barriers
        ("most_findings", c.c_int32),
        ("finding_count", c.c_int32),
        ("stopped", c.c_int32),  # by a finding that ends all programs
        ("special", c.c_int32 * len(SPECIAL)),  # the registers that hold them, or -1
    ]


class Access(c.Structure):
    _fields_ = [
        ("program", c.c_int32),  # -1: nobody
        ("pc", c.c_int32),
        ("epoch", c.c_uint32),  # between two barriers of the program
        ("warp_epoch", c.c_uint32),  # between two barriers of the warp
        ("stamp", c.c_uint32),  # the instruction's number, to know one store from the next
        ("warp", c.c_uint8),
        ("lane", c.c_uint8),
        ("atomic", c.c_uint8),  # clashes with no other one
        ("copied", c.c_uint8),  # by cp.async
    ]


class Reader(c.Structure):
    """One of several programs that have read a granule, and the next one of them."""

    _fields_ = [("access", Access), ("next", c.c_uint32)]


class Cell(c.Structure):
    """The past of one granule of memory."""

    _fields_ = [
        ("wrote", Access),
        ("read", Access),
        ("undefined", c.c_uint32),
        ("programs_read", c.c_uint32),  # more than one
        ("readers", c.c_uint32),  # where programs are resident: who has read it before the last one; 0: nobody
        ("clock", c.c_uint32),  # … what was released here; 0: nothing
    ]


_C_TYPES = {
    c.c_uint8: "u8",
    c.c_uint16: "u16",
    c.c_int32: "s32",
    c.c_uint32: "u32",
    c.c_int64: "s64",
    c.c_uint64: "u64",
    c.c_void_p: "void*",
}
_NUMBERS = {
    **{
        "LANES": LANES,
        "WARPGROUP": WARPGROUP // LANES,
        "BUFFER_SHIFT": BUFFER_SHIFT,
        "RESULTS": RESULTS,
        "SLOTS": SLOTS,
    },
    **{"SHARED_WINDOW": f"{SHARED_WINDOW}ull", "LOCAL_WINDOW": f"{LOCAL_WINDOW}ull"},
}
_STRUCTURES = (Instruction, Buffer, Constant, Finding, Counts, Access, Reader, Cell, Machine)
_WORDS = (Action, Space, Order, Mixes, Reduces, Number, Kind, Changes)


def header() -> str:
    """All of the above as C."""
    lines = [f"#define {name} {value}" for name, value in _NUMBERS.items()]
    for words in _WORDS:
        prefix = words.__name__.upper()
        lines.append("enum { " + ", ".join(f"{prefix}_{word.name} = {word.value}" for word in words) + " };")
    lines.append(
        "enum { " + ", ".join("SPECIAL_" + name.replace(".", "_").upper() for name in SPECIAL) + ", SPECIALS };"
    )
    for structure in _STRUCTURES:
        members = " ".join(_member(*field[:2]) for field in structure._fields_)
        lines.append(f"typedef struct {{ {members} }} {structure.__name__};")
    return "\n".join(lines) + "\n"


def _member(name: str, kind: Any) -> str:
    if hasattr(kind, "_length_"):
        return f"{_type(kind._type_)} {name}[{kind._length_}];"
    return f"{_type(kind)} {name};"


def _type(kind: Any) -> str:
    if kind in _C_TYPES:
        return _C_TYPES[kind]
    return f"{_type(kind._type_)}*" if hasattr(kind, "contents") else str(kind.__name__)
