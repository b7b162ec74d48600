"""What a kernel's machine code does inside of its loops, beside what its PTX asks for."""

from __future__ import annotations

import re

from jaxpr2triton.launch.cycles.flow import Loop
from jaxpr2triton.launch.cycles.sass import Instruction

_PTX_LINE = re.compile(r"\s*(?:@(!?%p\d+)\s+)?([a-z][\w.:]*)\s*([^;]*?)\s*;")
_PTX_NAMES = {
    r"bra\b": "BRA",
    r"ret\b": "EXIT",
    r"ld\.global|ld\.volatile\.global": "LDG",
    r"st\.global": "STG",
    r"cp\.async\.c[ag]": "LDGSTS",
    r"(atom|red)\.": "ATOMG",
    r"fma\..*f\d": "FFMA",
    r"(add|sub)\..*f\d": "FADD",
    r"mul\..*f\d": "FMUL",
    r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\..*f\d": "MUFU",
    r"(min|max)\..*f\d": "FMNMX",
}
LOADS = frozenset({"LDG", "LD", "LDGSTS", "UBLKCP", "UTMALDG"})
STORES = frozenset({"STG", "ST", "ATOMG", "ATOM", "RED", "UTMASTG"})
FUSED = frozenset({"FFMA", "DFMA", "HFMA2"})
FLOATING = FUSED | {"FADD", "FMUL", "FMNMX", "FSEL", "FSETP", "FSET", "MUFU", "HADD2", "HMUL2", "HMNMX2"}
FLOATING |= {"DADD", "DMUL", "DMNMX", "DSETP", "HMMA", "HGMMA", "DMMA"}


def is_floating(each: Instruction) -> bool:
    """Moves of constants dress up as multiplications: HFMA2.MMA R0, -RZ, RZ, 1, 0."""
    return each.kind in FLOATING and not each.operands.partition(",")[2].strip().startswith("-RZ, RZ")


def floating(loop: Loop) -> int:
    return sum(is_floating(each) for each in loop.instructions)


def operations(loop: Loop) -> int:
    """Floating-point operations of a thread; a fused multiplication and addition is two."""
    return sum(is_floating(each) * (2 if each.kind in FUSED else 1) for each in loop.instructions)


def rounds(machine: Loop, source: Loop | None) -> int:
    """How many rounds of the same loop in PTX are one of machine code: the assembler unrolls."""
    if source is None:
        return 1
    accesses = LOADS | STORES
    for done, asked in (
        (machine.count(accesses), source.count(accesses)),
        (operations(machine), operations(source)),
    ):
        if asked:
            return max(1, round(done / asked))
    return 1


def ptx_instructions(text: str) -> tuple[Instruction, ...]:
    """Those of PTX that matter here, under the names of machine code."""
    labels: dict[str, int] = {}
    found: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\$\w+):", line):
            labels[label[1]] = len(found)
        elif each := _PTX_LINE.match(line):
            found.append((each[1] or "", each[2], each[3]))
    names = (next((name for start, name in _PTX_NAMES.items() if re.match(start, word)), "NOP") for _, word, _ in found)
    targets = (f"0x{labels[rest]:x}" if rest in labels else rest for _, _, rest in found)
    parts = zip(found, names, targets)
    return tuple(Instruction(n, guard, name, target) for n, ((guard, _, _), name, target) in enumerate(parts))
