"""How control flows through machine code: blocks, loops, and where the sides of a branch meet again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxpr2triton.ir.digraph import backwards, dominators
from jaxpr2triton.launch.cycles.sass import Instruction

_END = -1  # stands behind all that leaves


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other; a call is the last one of its block."""

    code: tuple[Instruction, ...]
    after: tuple[int, ...]  # the blocks that follow, the one behind it first
    calls: int | None  # the block that is called at its end

    @property
    def last(self) -> Instruction:
        return self.code[-1]


@dataclass(frozen=True)
class Loop:
    """The instructions from which its head is reached again."""

    head: int
    instructions: tuple[Instruction, ...]

    @cached_property
    def addresses(self) -> frozenset[int]:
        return frozenset(each.address for each in self.instructions)

    def count(self, kinds: frozenset[str]) -> int:
        return sum(each.kind in kinds for each in self.instructions)


@dataclass(frozen=True)
class Flow:
    """The blocks of a kernel by the address of their first instructions."""

    blocks: dict[int, Block]

    @cached_property
    def after(self) -> dict[int, list[int]]:
        """The blocks that run behind each, and what it calls."""
        called = {address: () if block.calls is None else (block.calls,) for address, block in self.blocks.items()}
        return {address: [*block.after, *called[address]] for address, block in self.blocks.items()}

    @cached_property
    def before(self) -> dict[int, list[int]]:
        return backwards(self.after)

    @cached_property
    def above(self) -> dict[int, int | None]:
        """The block before each of those that are ever reached, through which all ways to it lead."""
        start = next(iter(self.blocks))
        return {**dominators(self.after, start), start: None}

    @cached_property
    def below(self) -> dict[int, int | None]:
        """The block behind each, through which all ways from it lead; calls come back, and loops end."""
        ends = [place for place, block in self.blocks.items() if not block.after or block.last.kind in ("EXIT", "RET")]
        before = backwards({place: block.after for place, block in self.blocks.items()})
        found = dominators({**before, _END: ends}, _END)
        return {place: None if behind == _END else behind for place, behind in found.items()}

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Natural loops: the head of each dominates the jump back to it. What is never reached is left out."""
        bodies: dict[int, set[int]] = {}
        for tail, head in ((tail, head) for tail, heads in self.after.items() for head in heads):
            if tail in self.above and head <= tail and self._dominates(head, tail):
                bodies.setdefault(head, {head}).update(self._reaching(tail, head))
        found = []
        for head, body in sorted(bodies.items()):
            inside = [each for address in sorted(body) for each in self.blocks[address].code]
            found.append(Loop(head, tuple(inside)))
        return tuple(found)

    def always(self, loop: Loop) -> frozenset[int]:
        """The instructions of a loop that no round leaves out; those of loops in it run once or more."""
        tails = [tail for tail in self.before[loop.head] if tail in loop.addresses]
        heads = [place for place in self.blocks if place in loop.addresses]
        whole = [place for place in heads if all(self._dominates(place, tail) for tail in tails)]
        return frozenset(each.address for place in whole for each in self.blocks[place].code)

    def _dominates(self, head: int, place: int | None) -> bool:
        while place is not None and place != head:
            place = self.above[place]
        return place == head

    def _reaching(self, tail: int, head: int) -> set[int]:
        """What reaches the tail without passing the head."""
        body, waiting = {head}, [tail]
        while waiting:
            place = waiting.pop()
            if place not in body:
                body.add(place)
                waiting += [before for before in self.before[place] if before in self.above]
        return body


def flow_of(code: Sequence[Instruction]) -> Flow:
    """Cut behind every jump and before every place that is jumped to.

    ptxas also calls what never comes back: `@!P0 CALL.REL.NOINC 0x1980` is how it leaves a loop for sm_80.
    """
    known = {each.address for each in code}
    heads = {code[0].address} | {each.target for each in code if each.target in known}
    for each, behind in zip(code, code[1:]):
        if each.kind in ("BRA", "JMP", "CALL", "EXIT", "RET", "BRX"):
            heads.add(behind.address)
    pieces: dict[int, list[Instruction]] = {}
    for each in code:
        if each.address in heads:
            current = pieces.setdefault(each.address, [])
        current.append(each)
    starts = [*pieces, None]
    blocks = {start: _block(pieces[start], behind) for start, behind in zip(pieces, starts[1:])}
    return Flow({start: block if _returns(block.calls, blocks) else _jumping(block) for start, block in blocks.items()})


def _block(code: Sequence[Instruction], behind: int | None) -> Block:
    last = code[-1]
    after = [behind] if last.falls_through and behind is not None else []
    calls = last.target if last.kind == "CALL" else None
    if last.target is not None and calls is None and last.target not in after:
        after.append(last.target)
    return Block(tuple(code), tuple(after), calls)


def _returns(called: int | None, blocks: dict[int, Block]) -> bool:
    """Whether a function comes back; also where nothing is called."""
    seen: set[int] = set()
    waiting = [] if called is None else [called]
    while waiting:
        place = waiting.pop()
        if place in blocks and place not in seen:
            seen.add(place)
            waiting += blocks[place].after
    return called is None or any(blocks[place].last.kind == "RET" for place in seen)


def _jumping(block: Block) -> Block:
    assert block.calls is not None
    return Block(block.code, (*(block.after if block.last.is_conditional else ()), block.calls), None)


def loops(code: Sequence[Instruction]) -> tuple[Loop, ...]:
    """All loops, by the addresses of their heads."""
    return flow_of(code).loops if code else ()


def innermost(found: Sequence[Loop], least: int = 0) -> tuple[Loop, ...]:
    """Those with no other loop inside, the longest first; loops inside of others have at least so many instructions."""
    inside = {loop.head for loop in found for other in found if loop is not other and loop.head in other.addresses}
    kept = [loop for loop in found if loop.head not in inside or len(loop.instructions) >= least]
    inner = [loop for loop in kept if not any(each.head in loop.addresses for each in kept if each is not loop)]
    return tuple(sorted(inner, key=lambda loop: -len(loop.instructions)))
