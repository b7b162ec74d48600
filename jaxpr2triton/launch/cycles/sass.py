"""Machine code as `cuobjdump -sass` prints it: instructions, and the schedule that ptxas wrote into each of them.

    /*0030*/  @!P0 LDG.E R2, desc[UR4][R4.64] ;  /* 0x… */    guard !P0, name LDG.E, kind LDG
                                                 /* 0x… */    go on after 2 cycles; counter 0 says when R2 is there

The second word ends with 21 bits of control: how many cycles the warp waits before its next instruction (4 bits, of
a fixed latency), a hint, which of six counters is set until the result is there, which one until the operands have
been read (3 bits each, 7 for none), and which counters this instruction waits for (6 bits).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_LINE = re.compile(
    r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;"
    r"(?:\s*/\* 0x[0-9a-f]{16} \*/\s+/\* 0x([0-9a-f]{16}) \*/)?"
)
_TARGET = re.compile(r"(?:^|\s)0x([0-9a-f]+)$")
_CONTROL = 41  # bits of the second word below those of control
COUNTERS = 6
_NONE = 7
LEAVES = ("BRA", "JMP", "EXIT", "RET", "BRX")


@dataclass(frozen=True)
class Instruction:
    address: int
    guard: str  # the predicate it is executed under, or nothing
    name: str  # with its suffixes
    operands: str
    stall: int = 0  # cycles until the warp may go on
    sets: int | None = None  # the counter that is set until its result is there
    reads: int | None = None  # … until its operands have been read
    waits: tuple[int, ...] = ()  # the counters that have to be clear before it begins

    @cached_property
    def kind(self) -> str:
        return self.name.split(".")[0]

    @property
    def target(self) -> int | None:
        """Where it may jump to."""
        found = _TARGET.search(self.operands) if self.kind in ("BRA", "JMP", "CALL") else None
        return int(found[1], 16) if found else None

    @property
    def has_result(self) -> bool:
        """Whether its first operand is written, not read."""
        return not self.kind.startswith("ST") and self.kind not in ("RED", "REDG", "BRA", "BAR")

    @property
    def is_conditional(self) -> bool:
        return bool(self.guard) or (self.kind == "BRA" and "," in self.operands)

    @property
    def calls_outside(self) -> bool:
        """Whether it calls a function that the code does not have; the only one is `__assertfail`, which ends it."""
        return self.name.startswith("CALL.ABS") and self.target is None

    @property
    def falls_through(self) -> bool:
        return (self.kind not in LEAVES and not self.calls_outside) or self.is_conditional

    @cached_property
    def width(self) -> int:
        """Bytes of a lane, of what reads or writes memory."""
        sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
        return next((sizes[part] for part in self.name.split(".")[1:] if part in sizes), 4)


def instructions(text: str) -> tuple[Instruction, ...]:
    """Those of a disassembly by cuobjdump, of one kernel and the functions that it calls."""
    lines = _LINE.findall(text)
    return tuple(Instruction(int(at, 16), guard, name, rest, *_control(high)) for at, guard, name, rest, high in lines)


def _control(high: str) -> tuple[int, int | None, int | None, tuple[int, ...]]:
    """0x000ea20000000a00 → wait 1 cycle, counter 1 is set."""
    bits = int(high or "0", 16) >> _CONTROL if high else _NONE << 5 | _NONE << 8
    sets, reads, mask = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    waits = tuple(counter for counter in range(COUNTERS) if mask >> counter & 1)
    return bits & 15, None if sets == _NONE else sets, None if reads == _NONE else reads, waits
