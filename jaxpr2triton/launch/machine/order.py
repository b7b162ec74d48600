"""In which order lanes that went apart take turns, so that they meet again where a device lets them meet.

The blocks of a kernel are put in an order in which every loop is in one piece, before what comes after it, and every
way through a branch comes before the place where the ways meet. Lanes that are further back in it go first.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from jaxpr2triton.ir.digraph import backwards, pieces
from jaxpr2triton.launch.machine.ptx import ASSERTION, Instruction

_ENDS = ("bra", "ret", "exit", "trap", ASSERTION)


@dataclass
class Flow:
    """The blocks of a kernel, each known by its first instruction."""

    body: Sequence[Instruction]
    branches: dict[int, int]  # the last instruction of each block
    after: dict[int, list[int]]  # the blocks that follow each
    before: dict[int, list[int]]
    order: list[int] = field(default_factory=list)
    loops: list[frozenset[int]] = field(default_factory=list)  # a loop before those in it

    @property
    def ranks(self) -> list[int]:
        """The place of each instruction's block in the order."""
        places = {start: place for place, start in enumerate(self.order)}
        found, place = [], 0
        for number in range(len(self.body)):
            place = places.get(number, place)
            found.append(place)
        return found

    def ways_out(self, lines: Set[int]) -> set[int]:
        """The branches that leave a loop of the source, which is known by the lines that begin one.

        What lies at such a line and leaves no loop may be anything: compilers join conditions.
        """
        found = set()
        for loop in self.loops:
            for block in loop:
                last = self.branches[block]
                leaves = any(after not in loop for after in self.after[block])
                if leaves and self.body[last].guard and self.body[last].line in lines:
                    found.add(last)
        return found


def flow_of(body: Sequence[Instruction]) -> Flow:
    labels = {n for n, each in enumerate(body) if not each.opcode}
    starts = sorted({0} | labels | {n + 1 for n, each in enumerate(body[:-1]) if each.name in _ENDS})
    block_of = {body[label].target: label for label in labels}
    branches: dict[int, int] = {}
    after: dict[int, list[int]] = {start: [] for start in starts}
    for start, end in zip(starts, [*starts[1:], len(body)]):
        last = body[end - 1]
        branches[start] = end - 1
        if last.name == "bra":
            after[start].append(block_of[last.target])
        if end < len(body) and (last.name not in _ENDS or last.guard):
            after[start].append(end)
    flow = Flow(body, branches, after, backwards(after))
    _put_in_order(flow, starts)
    return flow


def _put_in_order(flow: Flow, blocks: Sequence[int]) -> None:
    """`blocks` are in the order of the text."""
    kept = frozenset(blocks)
    for members in pieces({block: [other for other in flow.after[block] if other in kept] for block in blocks}):
        if len(members) > 1 or members[0] in flow.after[members[0]]:
            flow.loops.append(frozenset(members))
        entered = (block for block in members if any(b not in members for b in flow.before[block]))
        first = next(entered, members[0])
        flow.order.append(first)
        if len(members) > 1:
            _put_in_order(flow, [block for block in members if block != first])
