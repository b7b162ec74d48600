"""Loads that the first-level cache serves."""

from __future__ import annotations

from jaxpr2triton.launch.cycles.path import Walker
from jaxpr2triton.launch.cycles.reuse import Reuse, reuse_of
from jaxpr2triton.launch.cycles.trips import rounds_of
from tests.launch.cycles.written import flow

# what is at 0x20 is the same in each round, at 0x30 not; behind the loop is what each program has for itself
LINES = (
    *("S2R R8, SR_CTAID.X", "MOV R4, RZ", "LDG.E R10, desc[UR4][R2.64]", "LDG.E R11, desc[UR4][R4.64]"),
    *("IADD3 R4, R4, 0x4, RZ", "ISETP.NE.AND P0, PT, R4, 0x100, PT", "@P0 BRA 0x20"),
    *("IMAD.WIDE R6, R8, 0x4, R12", "LDG.E R14, desc[UR4][R6.64]", "LDG.E R15, desc[UR4][R2.64+0x80]", "EXIT"),
)


def served(room: int, lines: tuple[str, ...] = LINES) -> Reuse:
    found = flow(*lines)
    rounds = {loop.head: rounds_of(found, loop) for loop in found.loops}
    return reuse_of(found, Walker(found, True).whole(), rounds, lanes=32, programs=1, room=room)


def test_what_loops_and_programs_read_again() -> None:
    found = served(100_000)
    assert found.quick == {0x20}, "an earlier round has read it"
    assert found.near == {0x20, 0x30, 0x90}, "an earlier program has read it; 0x80 is another place for each program"


def test_what_does_not_fit_is_read_from_further_away() -> None:
    footprint = 32 * 4 * (1 + 64 + 1)
    assert served(footprint).near and served(footprint - 1) == Reuse()


def test_what_follows_the_program_and_the_round() -> None:
    moved = list(LINES)
    moved[1] = "IMAD R4, R8, 0x100, RZ"
    assert served(100_000, tuple(moved)).near == {0x20, 0x90}
