"""Simulate the warps of a scheduler side by side, instruction by instruction: one multiplies while others compute.

    warp 0   HGMMA … DEPBAR ~~~~~~~~~ softmax ━━━━━━━━━━━━━━ HGMMA … DEPBAR ~~~~~
    warp 1   ~~~~~~~~ softmax ━━━━━━━━━━━━━━ HGMMA … DEPBAR ~~~~~~~~~ softmax ━━━

They share what issues instructions, every pipe, and the tensor core; those of one program meet at its barriers. All
schedulers of a processor are taken to do the same at the same time, so that each has its part of what they share.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxpr2triton.launch.cycles.sass import Instruction
from jaxpr2triton.launch.cycles.warp import ISSUE, Phase, Tally, Warp, tally

BEFORE, MEASURED = 4, 12  # rounds until programs have found their places, and those behind that count


@dataclass
class _Place:
    """Where a warp is in the code."""

    warp: Warp
    program: int
    step: int = 0
    rounds: int = 0
    turn: int = 0  # the smaller it is, the longer it has executed nothing
    stalls: Tally = field(default_factory=lambda: Tally(float))


def round_of_all(
    steps: Sequence[Instruction], new_warp: Callable[[], Warp], warps: int, programs: int, once: bool
) -> Phase:
    """A round of all warps of a scheduler, so many of each program, and what each spends it on."""
    crew = _Crew(steps, [_Place(new_warp(), n // warps) for n in range(warps * programs)], warps)
    start, already = (0.0, 0) if once else crew.run(BEFORE)
    for place in crew.places:
        place.stalls.clear()
    end, done = crew.run(1 if once else BEFORE + MEASURED)
    cycles = (end - start) * len(crew.places) / (done - already)
    spent = tally(*((place.stalls, 1) for place in crew.places))
    return Phase(cycles, tally((spent, cycles / sum(spent.values()))))


@dataclass
class _Crew:
    """The warps of a scheduler: in `waiting`, by when they go on and whose turn it is, or at a barrier in `meeting`."""

    steps: Sequence[Instruction]
    places: list[_Place]
    warps: int  # of a program
    waiting: list[tuple[float, int, int]] = field(init=False)
    executed: int = 0
    meeting: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    free: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    pipes: list[tuple[str, ...]] = field(init=False)  # that each instruction takes

    def __post_init__(self) -> None:
        machine = self.places[0].warp.machine
        self.pipes = [(ISSUE, *(pipe for pipe, _ in machine.pipes(step))) for step in self.steps]
        self.waiting = [(0.0, 0, n) for n in range(len(self.places))]
        for place in self.places:
            place.warp.free = self.free
            place.warp.sharing = machine.target.schedulers

    def run(self, rounds: int) -> tuple[float, int]:
        """Until each of them has done so many: when that is, and how many all have done by then."""
        now = 0.0
        while min(place.rounds for place in self.places) < rounds:
            now, _, n = heapq.heappop(self.waiting)
            self._go_on(n)
        return now, sum(place.rounds for place in self.places)

    def _go_on(self, n: int) -> None:
        """Execute the next instruction of a warp, if that may begin."""
        place = self.places[n]
        each, warp = self.steps[place.step], place.warp
        until, cause = warp.blocked(each)
        for pipe in self.pipes[place.step]:
            if self.free[pipe] > until:
                until, cause = self.free[pipe], pipe
        if until > warp.now:
            self._wait(n, until, cause)
        elif each.kind == "BAR":
            self._meet(n)
        else:
            self._execute(n)

    def _wait(self, n: int, until: float, cause: str) -> None:
        place = self.places[n]
        place.stalls[cause] += until - place.warp.now
        place.warp.now = until
        heapq.heappush(self.waiting, (until, place.turn, n))

    def _meet(self, n: int) -> None:
        """At a barrier; the last warp of a program lets all of them go on."""
        there = self.meeting[self.places[n].program]
        there.append(n)
        if len(there) == self.warps:
            now = self.places[n].warp.now
            for other in there:
                place = self.places[other]
                place.stalls["barriers"] += now - place.warp.now
                place.warp.now = now
                self._execute(other)
            there.clear()

    def _execute(self, n: int) -> None:
        place = self.places[n]
        self.free[ISSUE] = place.warp.now + 1
        place.warp.execute(self.steps[place.step], Phase(stalls=place.stalls))
        place.step = (place.step + 1) % len(self.steps)
        place.rounds += not place.step
        self.executed += 1
        place.turn = self.executed
        heapq.heappush(self.waiting, (place.warp.now, place.turn, n))
