"""A warp that is alone, instruction by instruction: in order, each as soon as its schedule and its pipe allow.

Fixed latencies are in the schedule. What a load, a shuffle or a special function takes is not: it sets a counter, which
is clear when the `Machine` says so. A loop is walked until its rounds take equally long; the others are multiplied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxpr2triton.launch.cycles.latencies import FIRST_LEVEL, READ, TRAFFIC, WAITS, Machine
from jaxpr2triton.launch.cycles.path import Round, Way
from jaxpr2triton.launch.cycles.reuse import Reuse
from jaxpr2triton.launch.cycles.sass import COUNTERS, Instruction

ROUNDS = 5  # of a loop, after which its rounds are taken to be equally long
ISSUE = "issue"  # of a scheduler: one instruction in a cycle
ONE_WARP = "issue of one warp"  # … where other warps could begin in between
NO_REUSE = Reuse()
WHOLE = -1  # stands for a head where there is no loop
Tally = defaultdict[str, float]  # cycles by what they are spent on
ARITHMETIC = "dependent arithmetic"


def tally(*parts: tuple[Mapping[str, float], float]) -> Tally:
    """Each so many times, added up."""
    total = Tally(float)
    for part, times in parts:
        for what, cycles in part.items():
            total[what] += cycles * times
    return total


@dataclass
class Phase:
    """What is done between two barriers."""

    cycles: float = 0.0
    stalls: Tally = field(default_factory=lambda: Tally(float))  # what they are spent on
    busy: Tally = field(default_factory=lambda: Tally(float))  # cycles of each pipe
    bytes: int = 0  # of a warp, that pass between it and the second-level cache


@dataclass
class Part:
    """A round of a loop, or a whole kernel once through; what its inner loops do is theirs."""

    head: int  # where its loop begins
    phases: list[Phase] = field(default_factory=lambda: [Phase()])
    inner: list[Part] = field(default_factory=list)

    @property
    def all_phases(self) -> Phase:
        return Phase(
            sum(phase.cycles for phase in self.phases),
            tally(*((phase.stalls, 1) for phase in self.phases)),
            tally(*((phase.busy, 1) for phase in self.phases)),
            sum(phase.bytes for phase in self.phases),
        )


class Warp:
    """Where a warp is in time."""

    def __init__(
        self,
        machine: Machine,
        from_memory: bool,
        rounds: Mapping[int, int | None],
        reuse: Reuse = NO_REUSE,
        moved: Mapping[int, int] | None = None,
        warps: int = 1,
    ) -> None:
        self.machine, self.from_memory, self.rounds, self.reuse = machine, from_memory, rounds, reuse
        self.warps = warps  # of its program
        self.moved = moved or {}  # bytes, of what does not move as many as there are lanes
        self.now = 0.0
        self.clear = [0.0] * COUNTERS
        self.causes = [""] * COUNTERS
        self.free: defaultdict[str, float] = defaultdict(float)

    def walk(self, way: Way, head: int = WHOLE) -> Part:
        """Once through; loops that are met on the way are walked as often as they settle."""
        part = Part(head)
        for step in way.steps:
            if isinstance(step, Round):
                part.inner.append(self._loop(step))
                continue
            before = self.now
            self._execute(step, part.phases[-1])
            part.phases[-1].cycles += self.now - before
            if step.kind == "BAR":
                part.phases.append(Phase())
        return part

    def _loop(self, loop: Round) -> Part:
        """One round of those that are equally long."""
        rounds = self.rounds.get(loop.loop.head)
        for _ in range(ROUNDS if rounds is None else min(rounds, ROUNDS) - 1):
            self.walk(loop.steps)
        return self.walk(loop.steps, loop.loop.head)

    def _execute(self, each: Instruction, phase: Phase) -> None:
        begin = self._waited(each, phase)
        for pipe, busy in self.machine.pipes(each):
            if self.free[pipe] > begin:
                phase.stalls[pipe] += self.free[pipe] - begin
                begin = self.free[pipe]
            self.free[pipe] = begin + busy
            phase.busy[pipe] += busy
        phase.busy[ISSUE] += 1
        passes = each.kind in TRAFFIC and each.address not in self.reuse.near
        phase.bytes += self.moved.get(each.address, self.machine.lanes * each.width) if passes else 0
        quick = each.address in self.reuse.quick
        latency = self.machine.load_again if quick else self.machine.latency(each.kind, self.from_memory, self.warps)
        cause = FIRST_LEVEL if quick else WAITS.get(each.kind, ARITHMETIC)
        for counter, until in ((each.sets, latency), (each.reads, min(latency, READ))):
            if counter is not None and begin + until >= self.clear[counter]:
                self.clear[counter], self.causes[counter] = begin + until, cause
        stall = max(1, each.stall)
        if each.kind == "BAR":
            phase.stalls["barriers"] += max(latency - stall, 0)
            begin += max(latency - stall, 0)
        phase.stalls[ONE_WARP] += 1
        phase.stalls[ARITHMETIC] += stall - 1
        self.now = begin + stall

    def _waited(self, each: Instruction, phase: Phase) -> float:
        """When all counters that it waits for are clear."""
        latest = max(each.waits, key=lambda counter: self.clear[counter], default=None)
        if latest is None or self.clear[latest] <= self.now:
            return self.now
        phase.stalls[self.causes[latest]] += self.clear[latest] - self.now
        return self.clear[latest]
