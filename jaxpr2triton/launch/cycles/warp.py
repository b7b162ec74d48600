"""A warp that is alone, instruction by instruction: in order, each as soon as its schedule and its pipe allow.

Fixed latencies are in the schedule. What a load, a shuffle or a special function takes is not: it sets a counter, which
is clear when the `Machine` says so. Tensor cores do one product of a group of warps after the other, and there is an
instruction that waits for them. A loop is walked until its rounds take equally long; the others are multiplied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxpr2triton.launch.cycles.latencies import (
    FIRST_LEVEL,
    MEMORY_PIPE,
    READ,
    SHARED_RATE,
    TENSOR_CORES,
    TRAFFIC,
    WAITS,
    Machine,
)
from jaxpr2triton.launch.cycles.meetings import COMES, Meetings
from jaxpr2triton.launch.cycles.path import Round, Way
from jaxpr2triton.launch.cycles.reuse import Reuse
from jaxpr2triton.launch.cycles.sass import COUNTERS, Instruction
from jaxpr2triton.launch.cycles.tensor_cores import WARPS_OF_A_GROUP, Product, groups_left, product_of

ROUNDS = 5  # of a loop, after which its rounds are taken to be equally long
ISSUE = "issue"  # of a scheduler: one instruction in a cycle
ONE_WARP = "issue of one warp"  # … where other warps could begin in between
NO_REUSE = Reuse()
NO_MEETINGS = Meetings()
MEETINGS = "meetings"
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
    steps: list[Instruction] = field(default_factory=list)  # its own, in order
    together: Phase | None = None  # what all warps that run at once take, where they are simulated

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
        meetings: Meetings = NO_MEETINGS,
    ) -> None:
        self.machine, self.from_memory, self.rounds, self.reuse = machine, from_memory, rounds, reuse
        self.warps = warps  # of its program
        self.moved = moved or {}  # bytes, of what does not move as many as there are lanes
        self.meetings = meetings
        self.came = 0.0  # when it was that it came to the last one
        self.now = 0.0
        self.clear = [0.0] * COUNTERS
        self.causes = [""] * COUNTERS
        self.sharing = 1  # schedulers that take turns at what a processor has once
        self.groups: list[float] = []  # when each group of products is done, in order
        self.free: defaultdict[str, float] = defaultdict(float)

    def walk(self, way: Way, head: int = WHOLE) -> Part:
        """Once through; loops that are met on the way are walked as often as they settle."""
        part = Part(head)
        for step in way.steps:
            if isinstance(step, Round):
                part.inner.append(self._loop(step))
                continue
            part.steps.append(step)
            before = self.now
            self.execute(step, part.phases[-1])
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

    def execute(self, each: Instruction, phase: Phase) -> None:
        """As soon as what it waits for is done, and its pipe is free."""
        begin = self._waited(each, phase)
        for pipe, busy in self.machine.pipes(each):
            if self.free[pipe] > begin:
                phase.stalls[pipe] += self.free[pipe] - begin
                begin = self.free[pipe]
            self.free[pipe] = begin + busy * (self.sharing if pipe == MEMORY_PIPE else 1)
            phase.busy[pipe] += busy
        product = product_of(each)
        if product is not None and product.is_async:
            self._multiply(product, begin + self.machine.latency(each.kind, False), phase)
        phase.busy[ISSUE] += 1
        passes = each.kind in TRAFFIC and each.address not in self.reuse.near
        phase.bytes += self.moved.get(each.address, self.machine.lanes * each.width) if passes else 0
        quick = each.address in self.reuse.quick
        latency: float = self.machine.latency(each.kind, self.from_memory, self.warps)
        cause = WAITS.get(each.kind, ARITHMETIC)
        if quick:
            latency, cause = self.machine.load_again, FIRST_LEVEL
        if each.kind in COMES:
            self.came = begin
        if each.address in self.meetings.asks:
            latency, cause = max(latency, self.came + self.meetings.cycles - begin), MEETINGS
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

    def _multiply(self, product: Product, begin: float, phase: Phase) -> None:
        """Behind what tensor cores have to do already; the warp goes on meanwhile."""
        busy = self.machine.multiplying(product)
        done = max(self.free[TENSOR_CORES], begin) + busy
        self.free[TENSOR_CORES] = done
        phase.busy[TENSOR_CORES] += busy
        phase.busy[MEMORY_PIPE] += product.bytes_shared / SHARED_RATE / WARPS_OF_A_GROUP
        if product.ends_group:
            self.groups.append(done)

    def _waited(self, each: Instruction, phase: Phase) -> float:
        """When all that it waits for is done."""
        until, cause = self.blocked(each)
        if until <= self.now:
            return self.now
        phase.stalls[cause] += until - self.now
        return until

    def blocked(self, each: Instruction) -> tuple[float, str]:
        """Until when counters, or groups of products, keep it from beginning, and what for."""
        waits = [(self.clear[counter], self.causes[counter]) for counter in each.waits]
        left = groups_left(each)
        if left is not None and len(self.groups) > left:
            waits.append((self.groups[-1 - left], TENSOR_CORES))
        return max(waits, key=lambda wait: wait[0], default=(0.0, ""))
