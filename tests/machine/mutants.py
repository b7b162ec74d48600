"""Small mistakes in the machine's C, made one at a time by rule, to see that the tests would notice them.

    d0 = one_nan32(ftz32(a + b));   →   d0 = one_nan32((a + b));   and   d0 = one_nan32(ftz32(a - b));

Each mutant of an operation is one function more; one of a function of `arithmetic.h` is a copy of it and of those that
call it, and one more function for some operations that come to it. All are compiled together.
"""

from __future__ import annotations

import ctypes
import functools
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jaxpr2triton.launch.machine.build import FLAGS, HERE, opened
from jaxpr2triton.launch.machine.library import function_of
from jaxpr2triton.launch.machine.operations import operation
from tests.machine.lanes import differences

OPERATORS = (
    *(("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&")),
    *(("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("&", "|"), ("|", "&"), ("^", "|"), ("<<", ">>"), (">>", "<<")),
)
RULES = (
    *((rf" {re.escape(before)} ", f" {after} ") for before, after in OPERATORS),
    (r"\b(ftz32|ftz64|ftz_f16|ftz_bf16|one_nan32|one_nan64|relu32|relu64|sat32|sat64)\(", "("),
    (r"\b__builtin_rint", "__builtin_trunc"),
    (r"\b__builtin_trunc", "__builtin_ceil"),
    (r"\b__builtin_floor", "__builtin_ceil"),
    (r"\b__builtin_fabs", "-__builtin_fabs"),
    (r"\brp(?=\d)", "rz"),
    (r"\brz(?=\d)", "rp"),
    (r"\b(b?f16|tf32)_rn\b", r"\1_rz"),
    (r"\bmin(?=\d|_)", "max"),
    (r"\b_nan(?=\d)", ""),
    (r"(?<=\()-(?=\w)", ""),
    (r"\(s(8|16)\)(?=[a-z(])", r"(u\1)"),
    (r"\(f64\)(?=[abc-])", "(f32)"),
    (r"\ba\b(?! =)(?=.*\bb\b)", "b"),
    (r"(?<![\w.])(\d+)(?![\w.])", lambda found: str(int(found[0]) + 1)),
    (r"\b0x[0-9a-f]{2,}(?=u|\b)", lambda found: hex(int(found[0], 16) ^ _upper_bit(int(found[0], 16)))),
    (r" \?(?=[^?]*:)", " && 0 ?"),
    (r"!(?=\()", ""),
    (r" carry\b(?=;)", " 0"),
)
SIGNED = ("min", "max", "div", "rem", "shr", "bfe", "bfind", "sad", "mul.hi", "mul.wide", "mad.hi", "mad.wide")
SAMPLE = 320  # of the mutants of operations
USERS = 8  # operations that a function's mutants are seen through


def _upper_bit(n: int) -> int:
    """The lowest bit that is set of the first digit that is not zero: 0x70 → 0x10."""
    top = n >> (n.bit_length() - 1) // 4 * 4
    return (top & -top) << (n.bit_length() - 1) // 4 * 4


@dataclass(frozen=True)
class Mutant:
    place: str  # an opcode, or a function of `arithmetic.h`
    before: str
    after: str
    opcodes: tuple[str, ...]  # by which it may be noticed
    operands: tuple[str, ...] = ()  # of the operation, if they are others

    def __str__(self) -> str:
        """ftz32: … u & 0x[7→6]f800000u ? u …"""
        if self.operands:
            return f"{self.place}: as if of {', '.join(self.operands)}"
        start = next(i for i, (x, y) in enumerate(zip(self.before, self.after)) if x != y)
        rest, other = self.before[start:], self.after[start:]
        end = next((i for i, (x, y) in enumerate(zip(rest[::-1], other[::-1])) if x != y), min(len(rest), len(other)))
        was, is_ = rest[: len(rest) - end], other[: len(other) - end]
        around = self.before[max(0, start - 30) : start], rest[len(rest) - end :][:30]
        return f"{self.place}: {around[0]}[{was}→{is_}]{around[1]}".replace("\n", " ")


def changed(text: str) -> list[str]:
    """Every text that a rule makes of it, at every place."""
    made = []
    for pattern, by in RULES:
        for found in re.finditer(pattern, text):
            new = found.expand(by) if isinstance(by, str) else by(found)
            if re.match(r" [<>]=? $", found[0]) and _is_one_of_both(text[: found.start()], text[found.end() :]):
                continue
            made.append(text[: found.start()] + new + text[found.end() :])
    return [each for each in dict.fromkeys(made) if each != text]


def _is_one_of_both(left: str, right: str) -> bool:
    """x < least ? least : x is the same where both are."""
    x, y = re.search(r"([\w.]+)$", left), re.match(r"(-?[\w.]+) \? (-?[\w.]+) ", right)
    return bool(x and y and y[2] in (x[1], y[1]))


@functools.cache
def functions() -> dict[str, str]:
    """Those of `arithmetic.h`: their text by their name."""
    text = re.sub(r"#ifdef NOISE.*?#else|//[^\n]*", "", (HERE / "arithmetic.h").read_text("utf-8"), flags=re.DOTALL)
    pattern = r"^static inline \w+ (\w+)\([^\n]*\{(?:[^\n]*\}$|\n.*?^\}$)"
    return {found[1]: re.sub(r"\s+", " ", found[0]) for found in re.finditer(pattern, text, re.DOTALL | re.MULTILINE)}


def called(text: str) -> list[str]:
    return [name for name in functions() if re.search(rf"\b{name}\(", text)]


@functools.cache
def reached(name: str) -> frozenset[str]:
    """A function and all that it calls."""
    inner = functions()[name].split("{", 1)[1]
    return frozenset({name}).union(*(reached(each) for each in called(inner)))


@functools.cache
def uses(opcode: str) -> frozenset[str]:
    return frozenset().union(*(reached(each) for each in called(operation(opcode).body)))


def function_mutants(opcodes: tuple[str, ...]) -> Iterator[Mutant]:
    for name, text in functions().items():
        head, body = text.split("{", 1)
        if "memcpy" not in body:
            shown = users(name, opcodes)
            yield from (Mutant(name, text, f"{head}{{{other}", shown) for other in changed(body))


def users(name: str, opcodes: tuple[str, ...]) -> tuple[str, ...]:
    """Operations that come to a function in other ways; then of other types too."""
    unlike: tuple[dict[object, str], dict[object, str]] = ({}, {})
    known = [each for each in opcodes if name in uses(each)]
    for each in known:
        way = tuple(other for other in functions() if other in uses(each) and name in reached(other))
        unlike[0].setdefault(way, each)
        unlike[1].setdefault((way, operation(each).operands), each)
    return tuple(dict.fromkeys([*unlike[0].values(), *reversed(unlike[1].values()), *reversed(known)]))[:USERS]


def operation_mutants(opcodes: tuple[str, ...]) -> list[Mutant]:
    found = []
    for opcode in opcodes:
        known = operation(opcode)
        traps = (
            opcode.startswith(("div.", "rem.")) and known.operands[0][0] in "su"
        )  # a division by zero ends a process
        found += [Mutant(opcode, known.body, each, (opcode,)) for each in changed(known.body) if not traps]
        if opcode.startswith(SIGNED) and known.operands[0][0] in "su" and "x2" not in opcode:
            other = tuple("us"[t[0] == "u"] + t[1:] if t[0] in "su" else t for t in known.operands)
            found.append(Mutant(opcode, known.body, known.body, (opcode,), other))
    return random.Random(0).sample(found, SAMPLE)


def mutants(opcodes: tuple[str, ...]) -> list[Mutant]:
    return [*function_mutants(opcodes), *operation_mutants(opcodes)]


def text_of(number: int, mutant: Mutant) -> str:
    """The C of its functions: m7_0, m7_1, … are the operations it is seen through."""
    copies, names = "", ()
    if mutant.place in functions():
        needed = frozenset().union(*(uses(opcode) for opcode in mutant.opcodes))
        names = tuple(name for name in functions() if mutant.place in reached(name) and name in needed)
        copies = "\n".join(functions()[name] if name != mutant.place else mutant.after for name in names) + "\n"

    def renamed(text: str) -> str:
        return re.sub(rf"\b({'|'.join(names)})(?=\()", rf"\1_m{number}", text) if names else text

    parts = [renamed(copies)]
    for i, opcode in enumerate(mutant.opcodes):
        known = operation(opcode)
        body = renamed(known.body) if names else mutant.after
        operands = mutant.operands or known.operands
        parts.append(function_of(f"m{number}_{i}", replace(known, body=body, operands=operands)))
    return "\n".join(parts)


def compiled(all_mutants: list[Mutant], folder: Path) -> dict[Mutant, list[tuple[str, int]]]:
    """Opcodes and addresses. Without optimization: it is many functions, each called a few times."""
    folder.mkdir(parents=True, exist_ok=True)
    text = '#include "arithmetic.h"\n' + "\n".join(text_of(n, each) for n, each in enumerate(all_mutants))
    (folder / "mutants.c").write_text(text)
    flags = [each if each != "-O3" else "-O0" for each in FLAGS]
    command = ["gcc", *flags, f"-I{HERE}", "-o", str(folder / "mutants.so"), str(folder / "mutants.c"), "-lm"]
    subprocess.run(command, check=True)
    library = opened(folder / "mutants.so")
    return {
        mutant: [(opcode, _address(library[f"m{n}_{i}"])) for i, opcode in enumerate(mutant.opcodes)]
        for n, mutant in enumerate(all_mutants)
    }


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


def unnoticed(folder: Path, opcodes: tuple[str, ...]) -> tuple[list[Mutant], int]:
    """Those that no test would see, and how many there are."""
    every = compiled(mutants(opcodes), folder)
    seen = {mutant: any(differences(opcode, address) for opcode, address in its) for mutant, its in every.items()}
    return [mutant for mutant, noticed in seen.items() if not noticed], len(every)
