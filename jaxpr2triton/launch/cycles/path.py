"""The way that a warp takes through machine code: instructions in order, with loops as one thing each.

A branch has two sides, which meet again. By structure, never by name:

    a slow one      it calls what ptxas added, indexes local memory, has a loop that the source has not, or sorts out
                    lanes that are not together: jumped over where there is another way (large arguments of sines,
                    denormal quotients)
    lanes go apart  the sides end at a BSYNC: both are walked, one after the other, as a warp with some lanes for each;
                    what both have in common is walked once
    all together    the longer side
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxpr2triton.launch.cycles.flow import Flow, Loop
from jaxpr2triton.launch.cycles.sass import Instruction

_APART = ("ENDCOLLECTIVE",)  # of a warp whose lanes are not together, where they usually are
_STACK = "[R1"  # spilled registers are addressed by the stack pointer, arrays by another register


@dataclass(frozen=True)
class Round:
    """A loop on the way, and the way through one of its rounds."""

    loop: Loop
    steps: Way


@dataclass(frozen=True)
class Way:
    """What a warp does, in order."""

    steps: tuple[Instruction | Round, ...] = ()
    slow: bool = False  # it has to go where a slow side leads

    def __add__(self, other: Way) -> Way:
        return Way(self.steps + other.steps, self.slow or other.slow)

    @property
    def cycles(self) -> int:
        """At least; each loop counts once."""
        return sum(max(1, step.stall) if isinstance(step, Instruction) else step.steps.cycles for step in self.steps)


@dataclass
class Walker:
    """Finds the way through a kernel; counts the branches that it decided on."""

    flow: Flow
    calls_are_slow: bool  # the source has none, so that they are those of ptxas
    foreign: frozenset[int] = frozenset()  # heads of loops that the source has not
    jumped_over: set[int] = field(default_factory=set)  # branches with a slow side
    both: set[int] = field(default_factory=set)  # branches whose sides are both walked
    _known: dict[tuple[int, int | None, int | None], Way] = field(default_factory=dict)
    _calling: list[int] = field(default_factory=list)

    def whole(self) -> Way:
        return self._from(next(iter(self.flow.blocks)), None, None)

    def _from(self, start: int | None, stop: int | None, within: Loop | None) -> Way:
        """From one block up to another one, inside of a loop or anywhere."""
        if start is None or start == stop:
            return Way()
        key = (start, stop, None if within is None else within.head)
        if key not in self._known:
            self._known[key] = Way()  # what comes back here goes on behind
            steps: list[Instruction | Round] = []
            slow = False
            at: int | None = start
            while at is not None and at != stop:
                piece, at = self._next(at, stop, within)
                steps += piece.steps
                slow |= piece.slow
            self._known[key] = Way(tuple(steps), slow)
        return self._known[key]

    def _next(self, place: int, stop: int | None, within: Loop | None) -> tuple[Way, int | None]:
        """One block, or one loop, or the two sides of a branch; and where it goes on."""
        inner = next((each for each in self.flow.loops if each.head == place and each != within), None)
        if inner is not None:
            body = self._round(inner)
            return Way((Round(inner, body),), body.slow or place in self.foreign), self._behind(inner, within)
        block = self.flow.blocks[place]
        way = Way(block.code, _is_slow(block.code) or block.calls is not None and self.calls_are_slow)
        if block.calls is not None and block.calls not in self._calling:
            self._calling.append(block.calls)
            way += self._from(block.calls, None, None)
            self._calling.pop()
        after = [each for each in block.after if within is None or each in within.addresses and each != within.head]
        if len(after) < 2:
            return way, after[0] if after else None
        meet = self._meeting(place, within)
        end = stop if meet is None else meet
        return way + self._side(block.last, [self._from(each, end, within) for each in after], meet), meet

    def _round(self, loop: Loop) -> Way:
        """From the head of a loop until it is reached again."""
        first, at = self._next(loop.head, None, loop)
        return first + self._from(at, loop.head, loop)

    def _behind(self, loop: Loop, within: Loop | None) -> int | None:
        """Where all ways out of a loop lead."""
        place: int | None = loop.head
        while place is not None and place in loop.addresses:
            place = self.flow.below.get(place)
        return place if within is None or place in within.addresses and place != within.head else None

    def _meeting(self, place: int, within: Loop | None) -> int | None:
        meet = self.flow.below.get(place)
        return meet if within is None or meet in within.addresses and meet != within.head else None

    def _side(self, branch: Instruction, sides: list[Way], meet: int | None) -> Way:
        behind, over = sides
        if behind.slow != over.slow:
            self.jumped_over.add(branch.address)
            return over if behind.slow else behind
        apart = meet is not None and any(each.kind == "BSYNC" for each in self.flow.blocks[meet].code)
        if apart and behind.steps and over.steps:
            self.both.add(branch.address)
            there = set(behind.steps)
            return behind + Way(tuple(step for step in over.steps if step not in there), over.slow)
        return max(sides, key=lambda side: side.cycles)


def _is_slow(code: tuple[Instruction, ...]) -> bool:
    arrays = [each for each in code if each.kind in ("LDL", "STL") and _STACK not in each.operands]
    return bool(arrays) or any(each.kind in _APART for each in code)
