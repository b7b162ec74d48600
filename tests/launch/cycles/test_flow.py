"""Blocks, loops, and what never comes back."""

from __future__ import annotations

from tests.launch.cycles.written import flow


def test_sides_of_a_branch_meet() -> None:
    found = flow("@P0 BRA 0x30", "FADD R1, R1, R2", "BRA 0x40", "FMUL R1, R1, R2", "EXIT")
    assert {place: block.after for place, block in found.blocks.items()} == {
        0x00: (0x10, 0x30),
        0x10: (0x40,),
        0x30: (0x40,),
        0x40: (),
    }
    assert found.below[0x00] == 0x40 and found.below[0x40] is None


def test_a_loop_and_one_in_it() -> None:
    found = flow("FADD R1, R1, R2", "FADD R3, R3, R2", "@P0 BRA 0x10", "@P1 BRA 0x0", "EXIT")
    assert [(loop.head, len(loop.instructions)) for loop in found.loops] == [(0x00, 4), (0x10, 2)]


def test_a_call_comes_back() -> None:
    found = flow("CALL.REL.NOINC 0x30", "FADD R1, R1, R2", "EXIT", "FMUL R1, R1, R2", "RET.REL.NODEC R4 0x0")
    assert (found.blocks[0x00].calls, found.blocks[0x00].after) == (0x30, (0x10,))


def test_a_call_of_what_ends_is_a_jump() -> None:
    """ptxas leaves loops so for sm_80."""
    found = flow("FADD R1, R1, R2", "@!P0 CALL.REL.NOINC 0x30", "BRA 0x0", "FMUL R1, R1, R2", "EXIT")
    assert (found.blocks[0x00].calls, found.blocks[0x00].after) == (None, (0x20, 0x30))
    assert [loop.head for loop in found.loops] == [0x00]
