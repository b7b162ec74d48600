"""Loads that the first-level cache serves: what every round of a loop reads again, or every program of a processor.

    for t in range(512):                 the weights are at the same place in each step, and for each program
        tl.load(w_ptr + k), …            they take 16 KiB, so they stay; xs moves on with t, and comes from further away
        tl.load(xs_ptr + t * 64 + k)

Where all programs meet in a round, that cache has forgotten all behind it. What an address depends on is followed
through registers: the number of the program, and the rounds of loops.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxpr2triton.launch.cycles.flow import Flow, Loop
from jaxpr2triton.launch.cycles.meetings import asks, forgetting
from jaxpr2triton.launch.cycles.path import Round, Way
from jaxpr2triton.launch.cycles.sass import Instruction

PROGRAM = -2  # stands for the number of the program, beside the heads of loops
_REGISTERS = re.compile(r"\b(U?R)(\d+)(\.64)?")
_WORDS = 4  # registers of the widest result

Causes = frozenset[int]  # PROGRAM, and the heads of loops, with which something changes
Depends = defaultdict[str, Causes]


@dataclass(frozen=True)
class Reuse:
    """By the addresses of instructions."""

    quick: frozenset[int] = frozenset()  # loads that an earlier round has brought into the first-level cache
    near: frozenset[int] = frozenset()  # … or an earlier program: nothing of them passes the second-level cache


def reuse_of(flow: Flow, way: Way, rounds: Mapping[int, int | None], lanes: int, programs: int, room: int) -> Reuse:
    """Of `lanes` in a program, so many programs at once; `room` is what the cache holds."""
    causes, forgetful = _causes(flow), forgetting(flow)
    again: dict[int, bool] = {}
    footprint = 0
    for each, loops in _loads(way, ()):
        repeated = [head for head in loops if head not in causes[each.address] | forgetful and rounds[head] != 1]
        if not repeated and (PROGRAM in causes[each.address] or forgetful.intersection(loops)):
            continue
        again[each.address] = bool(repeated)
        places = each.width * lanes * (programs if PROGRAM in causes[each.address] else 1)
        for head in causes[each.address].intersection(loops):
            places *= rounds[head] or 1
        footprint += places
    if footprint > room:
        return Reuse()
    return Reuse(frozenset(address for address, in_loop in again.items() if in_loop), frozenset(again))


def _loads(way: Way, loops: tuple[int, ...]) -> Iterator[tuple[Instruction, tuple[int, ...]]]:
    """Each with the heads of the loops that it is in."""
    for step in way.steps:
        if isinstance(step, Round):
            yield from _loads(step.steps, (*loops, step.loop.head))
        elif step.kind == "LDG" and not asks(step):
            yield step, loops


def _causes(flow: Flow) -> dict[int, Causes]:
    """With what the address of each load changes. Twice through: what a round leaves behind, the next one finds."""
    depends: Depends = defaultdict(frozenset)
    found: dict[int, Causes] = {}
    carried = {loop.head: _carried(loop) for loop in flow.loops}
    for _ in range(2):
        for block in flow.blocks.values():
            for each in block.code:
                for register in carried.get(each.address, ()):
                    depends[register] |= {each.address}
                found[each.address] = _follow(each, depends)
    return found


def _carried(loop: Loop) -> set[str]:
    """Registers that a round reads before it writes them."""
    read: set[str] = set()
    written: set[str] = set()
    for each in loop.instructions:
        results, operands = _registers(each)
        read.update(register for register in operands if register not in written)
        written.update(results)
    return read & written


def _follow(each: Instruction, depends: Depends) -> Causes:
    """What the operands of an instruction depend on, and with them its results."""
    results, operands = _registers(each)
    causes = frozenset().union(*(depends[register] for register in operands))
    if "SR_CTAID" in each.operands:
        causes |= {PROGRAM}
    for register in results:
        depends[register] = causes | depends[register] if each.guard else causes
    return causes


def _registers(each: Instruction) -> tuple[list[str], list[str]]:
    """Results and operands: LDG.E.64 R2, desc[UR4][R4.64] → R2 R3, UR4 R4 R5."""
    first, _, rest = each.operands.partition(",")
    if not each.has_result:
        first, rest = "", each.operands
    result = _REGISTERS.fullmatch(first.strip())
    wide = max(1, each.width // _WORDS) if each.kind.startswith("LD") else 1
    wide = 2 if wide == 1 and any(part in each.name for part in (".WIDE", ".64", "CS2R")) else wide
    results = [f"{result[1]}{int(result[2]) + n}" for n in range(wide)] if result else []
    pairs = _REGISTERS.findall(rest)
    operands = [f"{kind}{int(number) + n}" for kind, number, long in pairs for n in range(2 if long else 1)]
    return results, operands
