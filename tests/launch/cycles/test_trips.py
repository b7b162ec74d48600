"""How often loops run, by their counters."""

from __future__ import annotations

import pytest

from jaxpr2triton.launch.cycles.trips import rounds_of
from tests.launch.cycles.written import flow

COUNTED = {
    "down to zero": (
        *(200, "UMOV UR4, 0x3e8", "UIADD3 UR4, UR4, -0x5, URZ", "ISETP.NE.U32.AND P1, PT, RZ, UR4, PT"),
        *("@P1 BRA 0x10",),
    ),
    "up": (
        *(128, "IMAD.MOV.U32 R4, RZ, RZ, RZ", "VIADD R4, R4, 0x8", "ISETP.NE.AND P0, PT, R4, 0x400, PT"),
        *("@P0 BRA 0x10",),
    ),
    "less than": (4, "MOV R4, RZ", "IADD3 R4, R4, 0x20, RZ", "ISETP.GE.U32.AND P0, PT, R4, 0x61, PT", "@!P0 BRA 0x10"),
    "before it is counted": (
        *(5, "MOV R4, RZ", "ISETP.LT.AND P0, PT, R4, 0x4, PT", "IADD3 R4, R4, 0x1, RZ"),
        *("@P0 BRA 0x10",),
    ),
    "64 bits": (
        *(512, "CS2R R4, SRZ", "IADD3 R4, P1, R4, 0x4000, RZ", "ISETP.NE.U32.AND P0, PT, R4, 0x800000, PT"),
        *("ISETP.NE.U32.AND.EX P0, PT, R5, RZ, PT, P0", "@P0 BRA 0x10"),
    ),
    "64 bits down below zero": (
        *(7, "MOV R25, 0xffff8000", "IADD3 R25, P0, R25, -0x48000, RZ", "ISETP.NE.U32.AND P0, PT, R25, -0x200000, PT"),
        *("ISETP.NE.U32.AND.EX P0, PT, R23, -0x1, PT, P0", "@P0 BRA 0x10"),
    ),
    "through another predicate": (
        *(10, "UMOV UR4, URZ", "UIADD3 UR4, UR4, 0x1, URZ", "UISETP.NE.AND UP0, UPT, UR4, 0xa, UPT"),
        *("PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", "@P0 BRA 0x10"),
    ),
    "left in the middle": (
        *(3, "HFMA2.MMA R4, -RZ, RZ, 0, 0", "IADD3 R4, R4, 0x1, RZ", "ISETP.NE.AND P0, PT, R4, 0x3, PT"),
        *("@!P0 EXIT", "FADD R1, R1, R2", "BRA 0x10"),
    ),
}  # fmt: skip
UNKNOWN = {
    "a number decides": ("MOV R4, RZ", "FSETP.GT.AND P0, PT, R1, 2, PT", "@P0 BRA 0x10"),
    "the bound is read": (
        *("LDC R6, c[0x0][0x210]", "IADD3 R4, R4, 0x1, RZ"),
        *("ISETP.NE.AND P0, PT, R4, R6, PT", "@P0 BRA 0x10"),
    ),
    "the start is read": (
        *("LDC R4, c[0x0][0x210]", "IADD3 R4, R4, 0x1, RZ"),
        *("ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 BRA 0x10"),
    ),
    "what is compared is no counter, or there would be no loop": (
        *("MOV R4, 0x8", "IADD3 R4, R4, 0x1, RZ", "ISETP.LT.AND P0, PT, R4, 0x4, PT", "@P0 BRA 0x10"),
    ),
    "counted under a predicate": (
        *("MOV R4, RZ", "@P1 IADD3 R4, R4, 0x1, RZ"),
        *("ISETP.NE.AND P0, PT, R4, 0x8, PT", "@P0 BRA 0x10"),
    ),
    "two predicates": ("MOV R4, RZ", "IADD3 R4, R4, 0x1, RZ", "ISETP.NE.AND P0, PT, R4, 0x8, PT", "@P0 BRA P1, 0x10"),
    "another way out": (
        *("MOV R4, RZ", "FSETP.GT.AND P1, PT, R1, 2, PT", "@P1 BRA 0x60", "IADD3 R4, R4, 0x1, RZ"),
        *("ISETP.NE.AND P0, PT, R4, 0x8, PT", "@P0 BRA 0x10"),
    ),
    "lanes agree where the counter was": (
        *("MOV R4, RZ", "UMOV UR5, 0x9", "IADD3 R4, R4, 0x1, RZ", "UIADD3 UR5, UR5, -0x1, URZ"),
        *("REDUX.MAX.S32 UR5, R3", "MOV R7, UR5", "ISETP.GE.AND P0, PT, R7, 0x1, PT", "@P0 BRA 0x20"),
    ),
    "it never ends": ("MOV R4, RZ", "IADD3 R4, R4, 0x1, RZ", "BRA 0x10"),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_counted_loops(name: str) -> None:
    rounds, *lines = COUNTED[name]
    found = flow(*map(str, lines), "EXIT")
    (loop,) = found.loops
    assert rounds_of(found, loop) == rounds


@pytest.mark.parametrize("name", UNKNOWN)
def test_loops_that_the_device_ends(name: str) -> None:
    found = flow(*UNKNOWN[name], "EXIT")
    (loop,) = found.loops
    assert rounds_of(found, loop) is None


def test_an_inner_loop_begins_anew() -> None:
    found = flow(
        *("MOV R4, RZ", "MOV R6, RZ", "IADD3 R6, R6, 0x2, RZ", "ISETP.NE.AND P0, PT, R6, 0x10, PT", "@P0 BRA 0x20"),
        *("IADD3 R4, R4, 0x1, RZ", "ISETP.NE.AND P0, PT, R4, 0x64, PT", "@P0 BRA 0x10", "EXIT"),
    )
    assert [rounds_of(found, loop) for loop in found.loops] == [100, 8]


def test_a_counter_that_goes_on_is_not_known() -> None:
    """The inner loop begins with what it had when it ended before."""
    found = flow(
        *("MOV R6, RZ", "FADD R1, R1, R2", "IADD3 R6, R6, 0x2, RZ", "ISETP.NE.AND P0, PT, R6, 0x10, PT"),
        *("@P0 BRA 0x20", "FSETP.GT.AND P0, PT, R1, 2, PT", "@P0 BRA 0x10", "EXIT"),
    )
    assert [rounds_of(found, loop) for loop in found.loops] == [None, None]


def test_a_counter_that_some_rounds_leave_alone_is_not_known() -> None:
    lines = ("MOV R4, RZ", "@P1 BRA 0x30", "IADD3 R4, R4, 0x1, RZ", "ISETP.NE.AND P0, PT, R4, 0x8, PT", "@P0 BRA 0x10")
    found = flow(*lines, "EXIT")
    assert rounds_of(found, found.loops[0]) is None


def test_two_ways_back_of_which_one_counts() -> None:
    found = flow(
        *("MOV R4, RZ", "FSETP.GT.AND P1, PT, R1, 2, PT", "@P1 BRA 0x10"),
        *("IADD3 R4, R4, 0x1, RZ", "ISETP.NE.AND P0, PT, R4, 0x8, PT", "@P0 BRA 0x10", "EXIT"),
    )
    assert rounds_of(found, found.loops[0]) is None
