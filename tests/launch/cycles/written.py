"""Machine code by hand, as cuobjdump prints it."""

from __future__ import annotations

from jaxpr2triton.launch.cycles.flow import Flow, flow_of
from jaxpr2triton.launch.cycles.sass import Instruction, instructions


def line(text: str, stall: int = 1, sets: int = 7, reads: int = 7, waits: tuple[int, ...] = ()) -> str:
    """An instruction and its schedule, without an address."""
    control = stall | sets << 5 | reads << 8 | sum(1 << counter for counter in waits) << 11
    return f"{text} ; /* 0x{0:016x} */\n /* 0x{control << 41:016x} */"


def code_of(*lines: str) -> tuple[Instruction, ...]:
    """At 0x00, 0x10, 0x20, …; a line may be the words alone."""
    whole = [each if ";" in each else line(each) for each in lines]
    return instructions("\n".join(f" /*{16 * n:04x}*/ {each}" for n, each in enumerate(whole)))


def flow(*lines: str) -> Flow:
    return flow_of(code_of(*lines))
