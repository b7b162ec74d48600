"""Which sides of branches a warp takes."""

from __future__ import annotations

from jaxpr2triton.launch.cycles.path import Round, Walker, Way
from jaxpr2triton.launch.cycles.sass import Instruction
from tests.launch.cycles.written import flow


def walked(*lines: str, calls_are_slow: bool = True, foreign: frozenset[int] = frozenset()) -> tuple[Walker, list[str]]:
    walker = Walker(flow(*lines), calls_are_slow, foreign)
    return walker, list(shown(walker.whole()))


def shown(way: Way) -> list[str]:
    """FADD, [FMUL BRA], EXIT: loops in brackets."""
    return [each.kind if isinstance(each, Instruction) else f"[{' '.join(shown(each.steps))}]" for each in way.steps]


def test_the_longer_side() -> None:
    walker, way = walked("@P0 BRA 0x40", "FADD R1, R1, R2", "FADD R1, R1, R2", "BRA 0x50", "FMUL R1, R1, R2", "EXIT")
    assert way == ["BRA", "FADD", "FADD", "BRA", "EXIT"]
    assert not walker.jumped_over and not walker.both


def test_both_sides_where_lanes_go_apart() -> None:
    walker, way = walked(
        *("BSSY B0, 0x60", "@P0 BRA 0x40", "FADD R1, R1, R2", "BRA 0x50", "FMUL R1, R1, R2", "BSYNC B0", "EXIT")
    )
    assert way == ["BSSY", "BRA", "FADD", "BRA", "FMUL", "BSYNC", "EXIT"]
    assert walker.both == {0x10}


def test_arrays_in_local_memory_are_jumped_over() -> None:
    walker, way = walked("@!P0 BRA 0x30", "STL [R7], R1", "LDL R1, [R7+0x4]", "FMUL R1, R1, R2", "EXIT")
    assert way == ["BRA", "FMUL", "EXIT"] and walker.jumped_over == {0x00}


def test_spilled_registers_are_not() -> None:
    walker, way = walked("@!P0 BRA 0x30", "STL [R1+0x8], R4", "LDL R4, [R1+0x8]", "FMUL R1, R1, R2", "EXIT")
    assert way == ["BRA", "STL", "LDL", "FMUL", "EXIT"] and not walker.jumped_over


CALLS = ("@!P0 BRA 0x20", "CALL.REL.NOINC 0x40", "FMUL R1, R1, R2", "EXIT", "FADD R1, R1, R2", "RET.REL.NODEC R4 0x0")


def test_what_ptxas_calls_is_jumped_over() -> None:
    assert walked(*CALLS)[1] == ["BRA", "FMUL", "EXIT"]


def test_what_the_kernel_calls_is_walked() -> None:
    assert walked(*CALLS, calls_are_slow=False)[1] == ["BRA", "CALL", "FADD", "RET", "FMUL", "EXIT"]


def test_there_may_be_no_way_around() -> None:
    walker, way = walked("STL [R7], R1", "@P0 BRA 0x40", "LDL R1, [R7]", "BRA 0x50", "LDL R2, [R7]", "EXIT")
    assert way[:2] == ["STL", "BRA"] and "LDL" in way and not walker.jumped_over


def test_loops_are_one_thing_each() -> None:
    lines = ("FADD R1, R1, R2", "FMUL R3, R3, R2", "@P0 BRA 0x10", "@P1 BRA 0x0", "EXIT")
    walker, way = walked(*lines)
    assert way == ["[FADD [FMUL BRA] BRA]", "EXIT"]
    outer = walker.whole().steps[0]
    assert isinstance(outer, Round) and outer.loop.head == 0


def test_a_loop_that_the_source_has_not_is_jumped_over() -> None:
    """Large arguments of a sine, in some versions of ptxas without local memory."""
    lines = ("@!P0 BRA 0x30", "FADD R1, R1, R2", "@P1 BRA 0x10", "FMUL R1, R1, R2", "EXIT")
    assert walked(*lines)[1] == ["BRA", "[FADD BRA]", "FMUL", "EXIT"]
    walker, way = walked(*lines, foreign=frozenset({0x10}))
    assert way == ["BRA", "FMUL", "EXIT"] and walker.jumped_over == {0x00}
