"""What kernels are modelled to take, as a table: a line for each kernel, and one for each of its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jaxpr2triton.ir.cycles import Cycles, LoopCycles, Stall
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.report.table import UNKNOWN, count, first_of, paragraph, table

SHARES_SHOWN = 2
LEAST_SHARE = 5  # per cent
KERNELS_NAMED = 4
HEADER = ["modelled", "steps", "cycles", "from DRAM", "µs", "bound by", "error"]


def shown_cycles(cycles: Mapping[Kernel, Cycles], width: int) -> list[str]:
    """Of kernels all cycles, of loops those of a step; with loads from the second-level cache, and from device memory.

    rnn             720,741    874,941  410.7  dependent arithmetic 51%, loads (L2) 17%   ±40 %
      t        512    1,405      1,705         dependent arithmetic 51%, loads (L2) 17%
    """
    if not cycles:
        return []
    rows = [row for kernel, each in cycles.items() for row in _rows(kernel.name, each)]
    return ["", table(HEADER, rows, width=width), *(paragraph(text, width, indent="  ") for text in _notes(cycles))]


def _rows(name: str, cycles: Cycles) -> list[list[object]]:
    times = [_whole(cycles.whole), _whole(cycles.from_memory), _microseconds(cycles)]
    rows: list[list[object]] = [[name, "", *times, shown_shares(cycles.shares), cycles.trust]]
    return rows + [_loop_row(loop) for loop in cycles.loops]


def _loop_row(loop: LoopCycles) -> list[object]:
    name = "  " * (loop.depth + 1) + loop.name
    steps = UNKNOWN if loop.steps is None else loop.steps
    return [name, steps, round(loop.cycles), round(loop.from_memory), "", shown_shares(loop.shares), ""]


def _whole(cycles: float | None) -> object:
    return UNKNOWN if cycles is None else round(cycles)


def _microseconds(cycles: Cycles) -> str:
    return UNKNOWN if cycles.microseconds is None else f"{cycles.microseconds:,.1f}"


def shown_shares(shares: Sequence[Stall]) -> str:
    """dependent arithmetic 78%, shuffles 21%"""
    total = sum(each.cycles for each in shares) or 1.0
    percents = [(each.what, round(100 * each.cycles / total)) for each in shares[:SHARES_SHOWN]]
    return ", ".join(f"{what} {percent}%" for what, percent in percents if percent >= LEAST_SHARE)


def _notes(cycles: Mapping[Kernel, Cycles]) -> list[str]:
    """What the figures are for, and what on the way through each kernel had to be decided."""
    any_of_them = next(iter(cycles.values()))
    notes = [
        f"a model that reads the machine code for {any_of_them.target}, at {any_of_them.clock} GHz; nothing was run, "
        "and launches are not in it; what planning estimates is another model: bytes and products at the full rates of "
        "the device, which few programs do not reach, and a launch"
    ]
    over = [kernel.name for kernel, each in cycles.items() if each.jumped_over]
    both = [kernel.name for kernel, each in cycles.items() if each.both_sides]
    unknown = [kernel.name for kernel, each in cycles.items() if each.whole is None]
    if over:
        branches = count(sum(each.jumped_over for each in cycles.values()), "branch", "branches")
        notes.append(f"slow paths are not taken, at {branches} of {first_of(over, KERNELS_NAMED)}")
    if both:
        branches = count(sum(each.both_sides for each in cycles.values()), "branch", "branches")
        notes.append(f"divergent branches, both sides counted: {branches} of {first_of(both, KERNELS_NAMED)}")
    if unknown:
        notes.append(f"the trip count of {first_of(unknown, KERNELS_NAMED)} is data-dependent")
    return notes


def cycle_facts(cycles: Cycles) -> dict[str, Any]:
    """The same for programs to read."""
    return {**asdict(cycles), "microseconds": cycles.microseconds, "bound": cycles.bound}
