"""Loops of the source, and which of those of machine code they are."""

from __future__ import annotations

from jaxpr2triton.launch.cycles.steps import SourceLoop, foreign_loops, matched, source_loops, taken
from jaxpr2triton.launch.cycles.warp import Part
from tests.launch.cycles.written import flow

SOURCE = """
def helper(x):
    for n in range(3):
        x = x + n
    return x

def kernel(x_ptr):
    for t in range(1000):
        for k_start in range(0, 512, 32):
            pass
        if going:
            while going:
                pass
    for n in range(bound):
        pass
"""


def test_loops_of_a_source() -> None:
    inner = (SourceLoop("k", 16, ()), SourceLoop("while", None, ()))
    assert source_loops(SOURCE, "kernel") == (SourceLoop("t", 1000, inner), SourceLoop("n", None, ()))


def test_a_round_is_several_steps() -> None:
    source = (SourceLoop("t", 1000, ()), SourceLoop("short", 3, ()), SourceLoop("k", 128, ()))
    found = matched([Part(0x10), Part(0x20)], source, {0x10: 200, 0x20: 6})
    assert [(found[head].name, found[head].steps, found[head].unrolled) for head in (0x10, 0x20)] == [
        ("t", 1000, 5),
        ("k", 128, 21),
    ]


def test_a_loop_that_the_source_has_not() -> None:
    lines = ("FADD R1, R1, R2", "FADD R1, R1, R2", "@P1 BRA 0x10", "@P0 BRA 0x0", "EXIT")
    loops = flow(*lines).loops
    rounds = {0x00: 100, 0x10: 6}
    assert foreign_loops(loops, (SourceLoop("t", 100, ()),), rounds) == {0x10}
    assert foreign_loops(loops, (SourceLoop("t", 100, (SourceLoop("k", 6, ()),)),), rounds) == frozenset()
    assert foreign_loops(loops, (), rounds) == {0x00, 0x10}


def test_a_counter_that_is_not_in_a_register() -> None:
    """The source says how long such a loop is, if it has as many loops as the machine code."""
    source = (SourceLoop("t", 1000, (SourceLoop("while", None, ()),)),)
    parts, rounds = [Part(0x10, inner=[Part(0x20)])], {0x10: None, 0x20: None}
    known = matched(parts, source, rounds)
    assert [(loop.name, loop.steps) for loop in known.values()] == [("t", 1000), ("while", None)]
    assert taken(known, rounds, is_seldom=False) == {0x10: 1000, 0x20: None}
    assert matched([*parts, Part(0x30)], source, rounds | {0x30: None})[0x10].name == "a loop"


def test_a_loop_that_is_there_for_rare_cases() -> None:
    source = (SourceLoop("t", 32, (SourceLoop("while", None, ()),)),)
    rounds = {0x10: 16, 0x20: None}
    known = matched([Part(0x10, inner=[Part(0x20)])], source, rounds)
    assert taken(known, rounds, is_seldom=True) == {0x10: 16, 0x20: 0}
