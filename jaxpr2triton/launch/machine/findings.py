"""What the machine finds, in words."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpr2triton.launch.machine import layout
from jaxpr2triton.launch.machine.layout import Kind

WORDS = {
    Kind.OUT_OF_BOUNDS: "access outside of a buffer",
    Kind.MISALIGNED: "misaligned access",
    Kind.INPUT_WRITTEN: "store into an input",
    Kind.RACE_OF_WARPS: "race between warps",
    Kind.RACE_IN_WARP: "race within a warp",
    Kind.RACE_OF_PROGRAMS: "race between programs",
    Kind.TWO_VALUES: "one store, two values",
    Kind.UNDEFINED_ADDRESS: "address that nothing defines",
    Kind.UNDEFINED_CHOICE: "choice by a value that nothing defines",
    Kind.UNDEFINED_STORED: "store of a value that nothing defines",
    Kind.DIVERGENT_BARRIER: "barrier or shuffle that not all lanes reach",
    Kind.BARRIER_NOT_REACHED: "barrier that a warp which has ended does not reach",
    Kind.STALE_LOAD: "load through the cache of constants from a buffer that the kernel writes",
    Kind.NO_END: "no end within the budget",
    Kind.TRAPPED: "trap",
    Kind.ABSENT_LANE: "shuffle from a lane that is not there",
    Kind.COPIES_CHOOSE: "copies of one value that differ between lanes decide something",
    Kind.COPIES_ADDRESS: "copies of one value that differ between lanes are an address",
    Kind.COPIES_STORED: "copies of one value that differ between lanes are stored to one place",
    Kind.LANES_DISAGREE: "lanes of a warp that leave a loop of the source at different steps",
    Kind.WARPS_DISAGREE: "warps of a program that leave a loop of the source at different steps",
    Kind.REGISTER_UNDER_WAY: "use of a register that a product which is not awaited has",
    Kind.REGISTER_NOT_FENCED: "product of registers that were written with no wgmma.fence since",
    Kind.MEMORY_UNDER_WAY: "store to shared memory that a product which is not awaited reads",
    Kind.MEMORY_NOT_FENCED: "product of shared memory that was stored to with no fence.proxy.async since",
    Kind.NEVER_COMMITTED: "end with products that no group was made of",
    Kind.WARPGROUP_DISAGREES: "product that is not the same in all lanes of four warps",
    Kind.ASSERTION_FAILS: "assertion that fails",
    Kind.DEADLOCK: "programs that wait for each other, and none goes on",
}
_PLACES = {-1: "shared memory", -2: "local memory"}


@dataclass(frozen=True)
class Finding:
    kind: Kind
    line: int  # of the kernel's source; 0 if that is not known
    instruction: str
    other_line: int  # of the access that it clashes with
    other_instruction: str
    where: str  # buffer, offset, program, warp, lane
    times: int
    user: str = ""  # the user's line that the kernel's line computes
    said: str = ""  # by an assertion

    @property
    def what(self) -> str:
        other = f" against line {self.other_line} `{self.other_instruction}`" if self.other_instruction else ""
        said = f" ({self.said})" if self.said else ""
        return f"{WORDS[self.kind]}{said}: `{self.instruction}`{other}; {self.where}"

    def __str__(self) -> str:
        user = f" ({self.user})" if self.user else ""
        times = "once" if self.times == 1 else f"{self.times:,} times"
        return f"line {self.line}{user}: {self.what}; {times}"


def in_words(
    found: layout.Finding,
    names: list[str],
    texts: list[str],
    lines: list[int],
    users: dict[int, str],
    said: str,
) -> Finding:
    """`names` of buffers; `texts` and `lines` of instructions; `users`: the user's line for each line of the kernel."""
    other = found.other_pc
    return Finding(
        kind=Kind(found.kind),
        line=lines[found.pc],
        instruction=texts[found.pc],
        other_line=lines[other] if other >= 0 else 0,
        other_instruction=texts[other] if other >= 0 else "",
        where=_where(found, names),
        times=found.count,
        user=users.get(lines[found.pc], ""),
        said=said,
    )


def _where(found: layout.Finding, names: list[str]) -> str:
    parts = []
    if found.buffer > -3 and found.kind != Kind.ASSERTION_FAILS:
        place = _PLACES.get(found.buffer) or names[found.buffer]
        parts.append(f"{place}, byte {found.offset}")
    parts.append(f"program {found.program}, warp {found.warp}, lane {found.lane}")
    others = [("warp", found.other_warp), ("lane", found.other_lane)]
    words = [f"program {found.other_program}"] if found.other_program >= 0 else []
    words += [f"{word} {'many' if number == 255 else number}" for word, number in others if number >= 0]
    if words:
        parts.append("the other: " + ", ".join(words))
    return ", ".join(parts)
