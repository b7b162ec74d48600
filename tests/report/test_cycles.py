"""Modelled cycles as they are printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxpr2triton.ir.cycles import Cycles, LoopCycles, Stall
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.report.cycles import cycle_facts, shown_cycles

SHARES = (Stall("dependent arithmetic", 700.0), Stall("loads (L2)", 260.0), Stall("constants", 40.0))
STEP = LoopCycles("t", 0, 512, 1, 1000.4, 1300.0, 900.0, 300.0, SHARES, SHARES)
INNER = replace(STEP, name="k", depth=1, steps=4, cycles=80.0, from_memory=80.0, shares=(Stall("issue", 80.0),))
FOUND = Cycles(
    target="sm_90",
    clock=1.755,
    loops=(STEP, INNER),
    whole=512_205.0,
    from_memory=665_600.0,
    bytes_alone=100.0,
    shares=SHARES,
    trust="±40 %",
    registers=190,
    spills=0,
    programs_at_once=1,
    waves=1,
    jumped_over=0,
    both_sides=0,
)


def kernel(name: str) -> Kernel:
    x = Buffer("x", (8,), np.dtype(np.float32))
    return Kernel(name, "", (x,), (x,), (), (1, 1, 1), 1, 1, 32, 32, 8)


def test_a_line_for_each_kernel_and_each_loop() -> None:
    assert shown_cycles({kernel("rnn"): FOUND}, 100) == [
        "",
        """\
  modelled  steps   cycles  from DRAM  µs     bound by                                  error
  rnn              512,205    665,600  291.9  dependent arithmetic 70%, loads (L2) 26%  ±40 %
    t         512    1,000      1,300         dependent arithmetic 70%, loads (L2) 26%
      k         4       80         80         issue 100%""",
        "  a model that reads the machine code for sm_90, at 1.755 GHz; nothing was run, and launches are not\n"
        "      in it; what planning estimates is another model: bytes and products at the full rates of the\n"
        "      device, which few programs do not reach, and a launch",
    ]


def test_what_had_to_be_decided_is_said() -> None:
    loop = replace(STEP, name="while", steps=None)
    endless = replace(FOUND, loops=(loop,), whole=None, from_memory=None, jumped_over=1, both_sides=2)
    _, table, _, slow, apart, unknown = shown_cycles({kernel("newton"): endless}, 100)
    assert [line.split()[:4] for line in table.splitlines()[1:]] == [
        ["newton", "-", "-", "-"],
        ["while", "-", "1,000", "1,300"],
    ]
    assert slow == "  slow paths are not taken, at 1 branch of newton"
    assert apart == "  divergent branches, both sides counted: 2 branches of newton"
    assert unknown == "  the trip count of newton is data-dependent"


def test_nothing_is_said_of_no_kernels() -> None:
    assert shown_cycles({}, 100) == []


def test_facts() -> None:
    facts = cycle_facts(FOUND)
    assert facts["microseconds"] == 512_205 / 1755 and facts["bound"] == "dependent arithmetic"
    assert facts["loops"][1]["name"] == "k" and facts["loops"][0]["shares"][0]["what"] == "dependent arithmetic"
