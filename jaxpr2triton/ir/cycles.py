"""What a kernel is expected to take, by a model that reads its machine code."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """What cycles are spent on."""

    what: str  # "dependent arithmetic", "FMA pipe", "issue", "loads (L2)", "barriers", "bytes", …
    cycles: float


@dataclass(frozen=True)
class LoopCycles:
    """A step of a loop."""

    name: str  # of the loop in the source: t, or while
    depth: int  # how many loops it is inside of
    steps: int | None  # each time that it is entered; None: the device finds out
    unrolled: int  # steps of the source that a round of machine code is
    cycles: float  # of all warps that share a processor
    from_memory: float  # … where all that is loaded comes from device memory instead of the second-level cache
    alone: float  # of a warp that is alone
    instructions: float  # of a warp
    shares: tuple[Stall, ...]  # of `cycles`, by what bounds them, the largest first
    stalls: tuple[Stall, ...]  # of `alone`, by what the warp does or waits for

    @property
    def bound(self) -> str:
        return self.shares[0].what if self.shares else ""


@dataclass(frozen=True)
class Cycles:
    """A kernel, from its first instruction to the last one of its last program. A launch by itself is not in it."""

    target: str
    clock: float  # GHz
    loops: tuple[LoopCycles, ...]  # as they stand, inner ones behind those that they are in
    whole: float | None  # cycles; None where the device finds out how long a loop is
    from_memory: float | None  # … where all that is loaded comes from device memory
    bytes_alone: float  # cycles in which what it reads and writes passes through device memory
    shares: tuple[Stall, ...]  # of `whole`, or with one step of each loop that the device ends
    trust: str  # ±15 %: the error to be expected
    registers: int  # of a thread
    spills: int  # bytes
    programs_at_once: int  # on one processor
    waves: int  # of programs, one after the other
    jumped_over: int  # branches that have a slow side, which is left out
    both_sides: int  # branches whose sides count both: lanes go apart

    @property
    def bound(self) -> str:
        return self.shares[0].what if self.shares else ""

    @property
    def a_step(self) -> float | None:
        """All loops, for each step of the one that runs most often, as schedules are estimated; None without loops."""
        outer = [loop for loop in self.loops if not loop.depth]
        if not outer:
            return None
        if any(loop.steps is None for loop in self.loops):
            return sum(loop.cycles for loop in outer)
        times: list[int] = []
        longest = 1
        for loop in self.loops:
            times = [*times[: loop.depth], loop.steps or 0]
            longest = max(longest, math.prod(times))
        return sum(loop.cycles * (loop.steps or 0) for loop in outer) / longest

    @property
    def microseconds(self) -> float | None:
        return None if self.whole is None else self.whole / self.clock / 1000
