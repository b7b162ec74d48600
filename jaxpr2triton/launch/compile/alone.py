"""How many programs of a kernel a processor has registers for: all are one's if it is alone there.

    .entry steps(…)             .entry steps(…)
    .reqntid 64           →     .reqntid 64
                                .minnctapersm 1

Unless it is told, the assembler leaves registers for programs beside it, and reads what lanes exchange from shared
memory a few numbers at a time, so that the thread waits for each of them. Where there are no more programs than
processors, nobody uses the rest. It is for loops that carry something, of which each step waits for the one before;
kernels that exchange nothing so, and those whose steps do not wait, are left as they are.

Programs that meet have to run at once. Whichever assembler it is that JAX finds, it may give them no more registers
than leave room for as many on a processor as there have to be.
"""

from __future__ import annotations

import re

_READ = re.compile(r"\b(ld\.shared|ldmatrix)\b")  # what lanes exchange
_THREADS = re.compile(r"^\s*\.reqntid\s[^\n]*$", re.MULTILINE)


def with_all_registers(ptx: str) -> str:
    """The same code, as what runs alone on a processor."""
    if _READ.search(ptx) is None:
        return ptx
    return with_room(ptx, 1)


def with_room(ptx: str, programs: int) -> str:
    """The same code, of which a processor has registers for so many programs."""
    return _THREADS.sub(lambda found: f"{found[0]}\n.minnctapersm {programs}", ptx)
