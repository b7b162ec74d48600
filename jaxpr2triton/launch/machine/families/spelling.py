"""Opcodes taken apart, and what an operation is.

    fma.rn.ftz.f32   →   Spelling(name="fma", modifiers=("rn", "ftz"), types=("f32",))

Each file beside this one has the rows of a family. A row says which spellings it is for, so that one with a modifier
that nobody thought of is unknown instead of wrong.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# What a lane's register holds. Predicates are 0 or 1; there are no registers of 8 bits: bytes live in those of 16.
C_TYPES = {
    **{"pred": "u32", "b16": "u16", "u16": "u16", "s16": "s16", "b32": "u32", "u32": "u32", "s32": "s32"},
    **{"b64": "u64", "u64": "u64", "s64": "s64", "f32": "f32", "f64": "f64", "f16": "u16", "bf16": "u16"},
    **{"f16x2": "u32", "bf16x2": "u32", "s16x2": "u32", "u16x2": "u32", "f32x2": "u64"},
}
BYTES = {"b8": "u8", "u8": "u8", "s8": "s8"}  # as C sees the lower half of such a register
PACKED = {"tf32": "b32", "e4m3x2": "b16", "e5m2x2": "b16"}  # kept in the bits of another type
TYPES = {*C_TYPES, *BYTES, *PACKED}

FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16")
SIGNED = ("s16", "s32", "s64")
INTEGERS = ("u16", "u32", "u64", *SIGNED)
BITS = ("b16", "b32", "b64")
ROUNDINGS = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Operation:
    """What one lane does: C that reads a, b, c, e, the operands in their order, and writes d0, d1, ...

    The types are those of the registers. `carry` is the lane's carry flag, a u32 that may be read and written.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    body: str


@dataclass(frozen=True)
class Spelling:
    name: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def type(self) -> str:
        return self.types[-1]

    @property
    def rounding(self) -> str:
        return next((each for each in self.modifiers if each in ROUNDINGS), "rn")

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers


Rule = Callable[[Spelling], Operation | None]  # None: there is no such form


@dataclass(frozen=True)
class Row:
    """The rule for some names, any of the modifiers, and types of which each is one of those given."""

    names: tuple[str, ...]
    modifiers: frozenset[str]
    types: tuple[frozenset[str], ...]
    rule: Rule

    def takes(self, spelling: Spelling) -> bool:
        return (
            self.modifiers.issuperset(spelling.modifiers)
            and len({*ROUNDINGS}.intersection(spelling.modifiers)) < 2
            and len(spelling.types) == len(self.types)
            and all(each in known for each, known in zip(spelling.types, self.types))
        )


def row(names: str, modifiers: str, *types: tuple[str, ...], rule: Rule) -> Row:
    return Row(tuple(names.split()), frozenset(modifiers.split()), tuple(map(frozenset, types)), rule)


def spelling_of(opcode: str) -> Spelling:
    name, *parts = opcode.split(".")
    modifiers = tuple(part for part in parts if part not in TYPES)
    return Spelling(name, modifiers, tuple(part for part in parts if part in TYPES))


def register(type: str) -> str:
    """The type of the register in which a value of a type lives: u8 → u16, e4m3x2 → b16."""
    return PACKED.get(type) or (type.replace("8", "16") if type in BYTES else type)


def width(type: str) -> int:
    """Bits of it: 32 for f16x2."""
    digits = re.findall(r"\d+", type)
    return int(digits[0]) * (2 if type.endswith("x2") else 1) if digits else 32


def same(type: str, count: int, expression: str) -> Operation:
    """An operation of one type: `count` operands, and a result that is an expression of them."""
    return Operation((type,), (type,) * count, f"d0 = {expression};")


def spelled(*patterns: str) -> tuple[str, ...]:
    """As a shell does: add{,.rn}.{f32,f64} → add.f32, add.f64, add.rn.f32, add.rn.f64."""
    return tuple(itertools.chain.from_iterable(map(_spelled, patterns)))


def _spelled(pattern: str) -> Iterator[str]:
    parts = [
        part[1:-1].split(",") if part.startswith("{") else [part] for part in re.findall(r"\{[^}]*\}|[^{]+", pattern)
    ]
    return map("".join, itertools.product(*parts))
