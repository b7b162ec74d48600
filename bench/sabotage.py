"""What the machine notices when one thing in a compiled kernel is made wrong.

    python -m bench.sabotage                       # all loop programs and their gradients
    python -m bench.sabotage rnn sinkhorn          # those whose names begin so
    python -m bench.sabotage --full                # and at full size: the first two programs of each grid
    python -m bench.sabotage --full --markdown bench/results/sabotage.md

No GPU is needed. Barriers and masks are deleted from what is compiled for sm_90, and instructions changed, one at a
time (of each kind at most --most in one kernel, of the latter at most 20). `values off` are kernels whose outputs then
differ by more than 2e-4 of the largest value: whoever compares with XLA notices those. Where no missing barrier is
noticed, outputs are compared in four orders of the warps. Barriers of the source are deleted before it is compiled.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from bench.loops import markdown_rows
from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.report.table import table
from tests.loop_programs import PROGRAMS, LoopProgram
from tests.machine.cases import Case, loop_cases
from tests.machine.sabotage import (
    ALONE,
    BARRIERS,
    DOUBLED,
    MASKS,
    NOTICED,
    RACES,
    VALUES,
    Outcome,
    outcomes,
    sabotages,
    what_becomes_of,
    without_barrier,
)

Some = TypeVar("Some")
OF_SOURCE = ["size", "deleted barriers of the source", "noticed", "doubled by one of Triton's", "nothing to order"]
OF_PTX = ["size", "what is wrong", "tried", "noticed", "race", "out of bounds", "other finding", "values off only"]
OF_PTX += ["missed, outputs equal", "missed, outputs differ", "not compared"]
MOST_VALUES = 20  # instructions changed in one kernel
MEBIBYTES = 100  # of all arrays of a kernel, at most: what the machine remembers of them is ten times as large


@dataclass
class Results:
    of_source: dict[str, Counter[str]] = field(default_factory=dict)
    of_ptx: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def add_source(self, size: str, case: Case) -> None:
        for _, less in without_barrier(case):
            what = what_becomes_of(less)
            self.of_source.setdefault(size, Counter())[what] += 1
            if what != NOTICED:
                print(f"  {less}: {what}", flush=True)

    def add_ptx(self, size: str, case: Case, kinds: Sequence[str], most: int) -> None:
        most_of = {kind: min(most, MOST_VALUES) if kind in VALUES else most for kind in kinds}
        every = [each for kind in kinds for each in spread([*sabotages(case, (kind,))], most_of[kind])]
        start = time.perf_counter()
        for each in outcomes(case, every):
            self.of_ptx.setdefault((size, each.kind), []).append(each)
            if each.changed and not each.noticed and not each.off:
                print(f"  MISSED {each}", flush=True)
        print(f"  {size}: {case}: {len(every)} in {time.perf_counter() - start:.1f} s", flush=True)

    def source_rows(self) -> list[list[object]]:
        return [[size, sum(of.values()), of[NOTICED], of[DOUBLED], of[ALONE]] for size, of in self.of_source.items()]

    def ptx_rows(self) -> list[list[object]]:
        return [[size, kind, len(every), *columns(every)] for (size, kind), every in self.of_ptx.items()]


def columns(every: Sequence[Outcome]) -> list[int]:
    races = [each for each in every if each.found & RACES]
    bounds = [each for each in every if not each.found & RACES and Kind.OUT_OF_BOUNDS in each.found]
    noticed = [each for each in every if each.noticed]
    missed = [each for each in every if not each.noticed]
    off = [each for each in missed if each.off]
    differ = [each for each in missed if each.changed and not each.off]
    unknown = [each for each in missed if not each.ended]
    equal = len(missed) - len(off) - len(differ) - len(unknown)
    other = len(noticed) - len(races) - len(bounds)
    return [len(noticed), len(races), len(bounds), other, len(off), equal, len(differ), len(unknown)]


def spread(every: Sequence[Some], most: int) -> list[Some]:
    """Evenly."""
    return [every[k * len(every) // most] for k in range(most)] if len(every) > most else [*every]


def cases(program: LoopProgram, full: bool, results: Results) -> Iterator[Case]:
    for case in loop_cases(program, full):
        size = sum(buffer.nbytes for buffer in case.kernel.buffers) / 2**20
        if size > MEBIBYTES:
            results.left_out.append(f"{case} ({size:,.0f} MiB)")
        else:
            yield case


def examine_all(programs: Sequence[LoopProgram], full: bool, most: int) -> Iterator[Results]:
    """After each program, what is known by then."""
    results = Results()
    for program in programs:
        for case in cases(program, False, results):
            results.add_ptx("test", case, (*BARRIERS, *MASKS, *VALUES), most)
            results.add_source("test", case)
            for warps in (2, 4):
                wide = case.with_warps(warps)
                results.add_source(f"test, {warps} warps", wide)
                if warps == 4:
                    results.add_ptx("test, 4 warps", wide, BARRIERS, most)
        for case in cases(program, True, results) if full and program.bench_args else ():
            results.add_ptx("full", case, BARRIERS, most)
            results.add_source("full", case)
        yield results


def page(results: Results, arguments: Sequence[str]) -> str:
    lines = ["# What the machine notices of what is made wrong", ""]
    of = f"jax {version('jax')}, triton {version('triton')}, Python {platform.python_version()}, sm_90"
    lines += [f"{datetime.date.today()}, {of}. To make it again:"]
    lines += [f"`python -m bench.sabotage {' '.join(arguments)}`, whose first lines say what the columns are.", ""]
    for header, rows in ((OF_SOURCE, results.source_rows()), (OF_PTX, results.ptx_rows())):
        lines += ["| " + " | ".join(row) + " |" for row in markdown_rows(header, rows)] + [""]
    if results.left_out:
        lines += [f"Left out for their size: {', '.join(results.left_out)}."]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument("--full", action="store_true", help="the full sizes too")
    parser.add_argument("--most", type=int, default=1000, help="of each kind in one kernel, evenly spread")
    parser.add_argument("--markdown", type=Path, help="a file to write the tables to")
    asked = parser.parse_args(arguments)
    chosen = [program for program in PROGRAMS if program.name.startswith(tuple(asked.names) or "")]
    results = Results()
    for results in examine_all(chosen, asked.full, asked.most):
        if asked.markdown:
            asked.markdown.write_text(page(results, arguments if arguments is not None else sys.argv[1:]))
    print(table(OF_SOURCE, results.source_rows()))
    print(table(OF_PTX, results.ptx_rows()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
