"""Kernels with one thing wrong: a barrier or a mask deleted, a shuffle that goes elsewhere, another instruction.

Whoever checks kernels has to notice such a thing; what the machine finds is held against whether the outputs change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from jaxpr2triton.launch.machine import run
from jaxpr2triton.launch.machine.encode import Encoded
from jaxpr2triton.launch.machine.layout import LANES, Action, Instruction, Kind
from jaxpr2triton.launch.machine.operations import operation
from jaxpr2triton.launch.machine.run import Program
from tests.compiling import differences
from tests.machine.cases import Case

BARRIER, WARP_BARRIER = "`bar.sync` deleted", "`bar.warp.sync` deleted"
LOAD_MASK, STORE_MASK = "mask of a load from global memory deleted", "mask of a store to global memory deleted"
DISTANCE, OPCODE = "shuffle over another distance", "another instruction of the same types"
BARRIERS, MASKS, VALUES = (BARRIER, WARP_BARRIER), (LOAD_MASK, STORE_MASK), (DISTANCE, OPCODE)
BARRIER_OF_SOURCE = "tl.debug_barrier()"
NOTICED = "noticed"
DOUBLED = "not noticed until a barrier of Triton's own is deleted too"
ALONE = "not noticed: every thread reads only what it wrote itself"
RACES = frozenset({Kind.RACE_IN_WARP, Kind.RACE_OF_WARPS, Kind.RACE_OF_PROGRAMS})
_OTHERS = {
    **{"ex2": "lg2", "lg2": "ex2", "sqrt": "rcp", "rcp": "sqrt", "sin": "cos", "cos": "sin"},
    **{"add": "sub", "sub": "add", "min": "max", "max": "min"},
}
_FLOATING = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
DIGITS = 2e-4  # that values may be off when kernels are compared with XLA
ALL_FINDINGS = 4096
ORDERS = ((2, 0), (3, 7), (4, 50))  # other seeds, and how long a warp goes on


@dataclass(frozen=True)
class Sabotage:
    kind: str
    place: int  # of the instruction
    text: str
    program: Program

    def __str__(self) -> str:
        return f"{self.kind}: `{self.text}` ({self.place})"


@dataclass(frozen=True)
class Outcome:
    """What came of one of them."""

    case: str
    sabotage: str
    kind: str
    found: frozenset[Kind]
    forgotten: bool  # elements of the outputs that nothing writes
    changed: bool  # the outputs, in some order of the warps
    off: bool  # by more than kernels may be off
    ended: bool  # within the budget: the outputs can be compared

    @property
    def noticed(self) -> bool:
        return bool(self.found) or self.forgotten

    def __str__(self) -> str:
        return f"{self.case}: {self.sabotage}"


def sabotages(case: Case, kinds: Sequence[str]) -> Iterator[Sabotage]:
    """One for each place where it can be done."""
    program = case.program
    encoded = program.encoded
    for place, (instruction, code) in enumerate(zip(encoded.module.body, encoded.code)):
        in_global = instruction.name in ("ld", "st") and "global" in instruction.modifiers
        changed, kind = encoded, ""
        if code.action == Action.BARRIER:
            changed, kind = _with(encoded, place, action=Action.NOTHING), BARRIER
        elif code.action == Action.WARP_BARRIER:
            changed, kind = _with(encoded, place, action=Action.NOTHING), WARP_BARRIER
        elif in_global and code.guard >= 0:
            kind = LOAD_MASK if instruction.name == "ld" else STORE_MASK
            changed = _with(encoded, place, guard=-1)
        elif code.action == Action.SHUFFLE and "bfly" in instruction.modifiers:
            changed, kind = _with_distance(encoded, place, str(instruction.operands[2])), DISTANCE
        elif instruction.name in _OTHERS and instruction.modifiers[-1] in _FLOATING:
            other = instruction.opcode.replace(instruction.name, _OTHERS[instruction.name], 1)
            if operation(other) is not None:
                changed, kind = replace(encoded, opcodes={**encoded.opcodes, place: other}), OPCODE
        if kind in kinds:
            yield Sabotage(kind, place, instruction.text, replace(program, encoded=changed))


def outcomes(case: Case, every: Sequence[Sabotage]) -> Iterator[Outcome]:
    base = case.run()
    kinds = {finding.kind for finding in base.findings} - {Kind.NO_END}
    assert not kinds, f"{case} is wrong as it is: {base.findings[0]}"
    ended = not base.findings
    for each in every:
        ran = case.run(program=each.program)
        found = frozenset(finding.kind for finding in ran.findings)
        ended_too = Kind.NO_END not in found
        results = [ran.outputs]
        if found <= {Kind.NO_END} and ended and ended_too and each.kind in BARRIERS and case.kernel.num_warps > 1:
            results += [case.run(program=each.program, seed=seed, quantum=quantum).outputs for seed, quantum in ORDERS]
        yield Outcome(
            case=str(case),
            sabotage=str(each),
            kind=each.kind,
            found=found if ended else found - {Kind.NO_END},
            forgotten=bool(ran.forgotten),
            changed=ended and any(_differ(result, base.outputs) for result in results),
            off=ended and any(bool(differences(result, base.outputs, DIGITS)) for result in results),
            ended=ended,
        )


def without_barrier(case: Case) -> Iterator[tuple[int, Case]]:
    """The kernel compiled without one of the barriers that its source has, and the line of that."""
    lines = case.kernel.source.split("\n")
    for number, line in enumerate(lines):
        if line.strip() == BARRIER_OF_SOURCE:
            deleted = [*lines[:number], line.replace(BARRIER_OF_SOURCE, "pass"), *lines[number + 1 :]]
            yield number + 1, replace(case.with_source("\n".join(deleted)), name=f"{case} without line {number + 1}")


def without_any_barrier(case: Case) -> Program:
    """Without those that Triton puts between its own steps, too."""
    encoded, silent = case.program.encoded, []
    for code in encoded.code:
        silent.append(Instruction.from_buffer_copy(code))
        if code.action in (Action.BARRIER, Action.WARP_BARRIER):
            silent[-1].action = Action.NOTHING
    return replace(case.program, encoded=replace(encoded, code=silent))


def what_becomes_of(case: Case) -> str:
    """A kernel whose source lacks a barrier: races, or what there is instead of it."""
    if RACES & {finding.kind for finding in case.run().findings}:
        return NOTICED
    with patch.object(run, "MOST_FINDINGS", ALL_FINDINGS):
        found = case.run(without_any_barrier(case)).findings
    assert len(found) < ALL_FINDINGS and Kind.NO_END not in {each.kind for each in found}, f"{case}: there may be more"
    own = [buffer.name for buffer in case.kernel.kept]
    return DOUBLED if any(each.kind in RACES and each.where.split(",")[0] in own for each in found) else ALONE


def _differ(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """In any bit."""
    return any(one.tobytes() != other.tobytes() for one, other in zip(some, others))


def _with(encoded: Encoded, place: int, **fields: int) -> Encoded:
    changed = Instruction.from_buffer_copy(encoded.code[place])
    for name, value in fields.items():
        setattr(changed, name, value)
    return replace(encoded, code=[*encoded.code[:place], changed, *encoded.code[place + 1 :]])


def _with_distance(encoded: Encoded, place: int, distance: str) -> Encoded:
    """16 → 8, and all others doubled."""
    other = 8 if int(distance, 0) == 16 else 2 * int(distance, 0)
    slot = encoded.constants.get((other, 4), encoded.file)
    changed = Instruction.from_buffer_copy(encoded.code[place])
    changed.slots[changed.results + 1] = slot
    return replace(
        encoded,
        code=[*encoded.code[:place], changed, *encoded.code[place + 1 :]],
        constants={**encoded.constants, (other, 4): slot},
        file=encoded.file + 4 * LANES * (slot == encoded.file),
    )
