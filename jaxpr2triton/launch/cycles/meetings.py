"""Where all programs of a kernel meet: in the model each of them asks once, and all are there.

    ATOMG.E.ADD.STRONG.GPU …            who comes
    LDG.E.STRONG.GPU …; CCTL.IVALL      asks whether all have come; the cache of the processor forgets what it has
    @P1 BRA P3, 0x490                   and asks again: no loop here
    @P2 BRA 0x680                       or fails: never here

How often they ask depends on the others. So a meeting is given a time of its own, from who comes to the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxpr2triton.launch.cycles.flow import Block, Flow, Loop
from jaxpr2triton.launch.cycles.sass import Instruction

COMES = ("ATOMG", "ATOM", "RED", "REDG")
FORGETS = frozenset({"CCTL"})


@dataclass(frozen=True)
class Meetings:
    """Where programs ask, and how long it takes until all are there."""

    asks: frozenset[int] = frozenset()  # addresses
    cycles: float = 0.0


def asks(each: Instruction) -> bool:
    """Whether it loads what other programs write meanwhile: no cache of a processor's may answer."""
    return each.kind == "LDG" and "STRONG" in each.name


def asked_once(flow: Flow) -> tuple[Flow, frozenset[int]]:
    """The flow in which nobody asks again and nothing fails; and the addresses of those who ask."""
    blocks = {place: _going_on(block, flow) for place, block in flow.blocks.items()}
    asking = []
    for loop, load in _spins(Flow(blocks)):
        asking.append(load.address)
        for place in loop.addresses & blocks.keys():
            blocks[place] = _without(blocks[place], loop.head)
    return Flow(blocks), frozenset(asking)


def forgetting(flow: Flow) -> frozenset[int]:
    """The heads of loops in whose rounds all programs meet."""
    return frozenset(loop.head for loop in flow.loops if loop.count(FORGETS))


def _spins(flow: Flow) -> Iterator[tuple[Loop, Instruction]]:
    """The innermost loop around each load of what others write."""
    for load in (each for block in flow.blocks.values() for each in block.code if asks(each)):
        around = [loop for loop in flow.loops if load.address in loop.addresses]
        if around:
            yield min(around, key=lambda loop: len(loop.instructions)), load


def _going_on(block: Block, flow: Flow) -> Block:
    """Without the way to where the kernel fails, if there is another."""
    failing = [place for place in block.after if _fails(place, flow)]
    for place in failing[: len(block.after) - 1]:
        block = _without(block, place)
    return block


def _fails(place: int, flow: Flow) -> bool:
    """Whether it leads to a call of what is not in this code: `__assertfail`, which does not come back."""
    block = flow.blocks[place]
    while len(block.after) == 1 and block.after[0] > place:
        place = block.after[0]
        block = flow.blocks[place]
    return block.last.calls_outside


def _without(block: Block, place: int) -> Block:
    return Block(block.code, tuple(after for after in block.after if after != place), block.calls)
