"""What kernels at full size take, modelled from their machine code, what bounds them, and XLA's launches beside them.

    python -m bench.cycles                               # all programs, with and without loops, and their gradients
    python -m bench.cycles rnn lorenz                    # those whose names begin so
    python -m bench.cycles --save before.json            # on the old commit
    python -m bench.cycles --against before.json         # on the new one: what differs by more than 2 %
    python -m bench.cycles --against HEAD~3              # the same in one run, for the kernels of that commit
    python -m bench.cycles --markdown bench/results/cycles-sm_90.md

No GPU is needed: kernels are compiled for --target (sm_90) and disassembled, never run. `jaxpr2triton/launch/cycles/`
says what the model knows. Times are those of kernels with loads from the second-level cache and, behind a stroke, from
device memory. Every launch counts 1.5 µs more, ours and those of XLA alone: what `explain` estimates, or, with `--xla`
and JAX's CUDA plugin, what XLA makes of loops. `µs of bytes` is how long inputs and outputs, once each, take to pass
through device memory. At the end the estimates by which schedules were chosen stand against the model: a ratio that is
the same everywhere does no harm, a low rank correlation does.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pickle
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

import jaxpr2triton as j2t
from bench import xla
from bench.kernels import Found, all_kernels
from bench.loops import launches_of, markdown_rows, why_no_xla
from jaxpr2triton.hardware import DEFAULT_TARGET, Target, target_named
from jaxpr2triton.ir.cycles import LoopCycles
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.cycles.latencies import MACHINES, machine_of
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.report.cycles import shown_shares
from jaxpr2triton.report.table import table
from tests.loop_programs import PROGRAMS as LOOP_PROGRAMS

LAUNCH = 1.5  # µs
SECONDS = 60  # for each program, before XLA is given up
CHANGED = 0.02  # of what it was
MISSING = "-"
KERNEL_HEADER = ["kernel", "pass", "grid x warps", "steps x cycles", "cycles", "µs", "bound by", "error", "estimate"]
PROGRAM_HEADER = ["program", "pass", "launches", "µs", "XLA's launches", "µs of those", "µs of bytes"]
CHANGE_HEADER = ["kernel", "pass", "before", "after", "ratio", "bound before", "bound after"]


@dataclass(frozen=True)
class Row:
    """A kernel and what the model says, in words and numbers that can be saved."""

    program: str
    kernel: str
    kind: str
    shape: str
    loops: str
    cycles: float | None
    from_memory: float | None
    a_step: float | None  # as the schedule's estimate counts it
    estimate: int | None
    shares: str
    bound: str
    trust: str
    clock: float
    problem: str = ""

    @property
    def title(self) -> str:
        return self.kernel if self.kernel.startswith(self.program) else f"{self.program}: {self.kernel}"

    @property
    def of_interest(self) -> float | None:
        """Of the whole kernel; of a step where nothing else is known."""
        return self.cycles or self.a_step


def row_of(kernel: Kernel, found: Found, target: Target) -> Row:
    shape = f"{math.prod(kernel.grid)} x {kernel.num_warps}"
    estimate = kernel.choice.chosen.cycles if kernel.choice else None
    try:
        cycles = cycles_of(kernel, target)
    except j2t.KernelRefused as refusal:
        missing = (None, None, None, estimate, "", "", "", 1.0)
        return Row(
            found.program, kernel.name, found.kind, shape, "", *missing, problem=" ".join(str(refusal).split())[:200]
        )
    loops = "; ".join(_loop(loop) for loop in cycles.loops)
    numbers = (cycles.whole, cycles.from_memory, cycles.a_step, estimate)
    words = (shown_shares(cycles.shares), cycles.bound, cycles.trust)
    return Row(found.program, kernel.name, found.kind, shape, loops, *numbers, *words, cycles.clock)


def _loop(loop: LoopCycles) -> str:
    steps = "?" if loop.steps is None else f"{loop.steps:,}"
    return f"{'in it ' * loop.depth}{loop.name} {steps} x {loop.cycles:,.0f}/{loop.from_memory:,.0f}"


def kernel_line(row: Row) -> list[object]:
    if row.problem:
        return [row.title, row.kind, row.shape, MISSING, MISSING, MISSING, row.problem, MISSING, MISSING]
    both = [_number(row.cycles), _both(row.cycles, row.from_memory, row.clock * 1000)]
    against = MISSING if not row.a_step or not row.estimate else f"{row.estimate:,} for {row.a_step:,.0f}"
    return [row.title, row.kind, row.shape, row.loops or MISSING, *both, row.shares, row.trust, against]


def _number(number: float | None) -> object:
    return MISSING if number is None else round(number)


def _both(near: float | None, far: float | None, scale: float) -> str:
    """7.1 / 9.3"""
    if near is None or far is None:
        return MISSING
    first, second = (f"{number / scale:,.1f}" for number in (near, far))
    return first if first == second else f"{first} / {second}"


def program_line(found: Found, rows: Sequence[Row], target: Target, other: xla.Bounded | None) -> list[object]:
    launches = len(found.kernels) + found.leftovers
    near = _total([row.cycles for row in rows])
    far = _total([row.from_memory for row in rows])
    machine = machine_of(target)
    ours = [each if each is None else each / (machine.clock * 1000) + launches * LAUNCH for each in (near, far)]
    alone = found.alone if other is None else _launches_of_xla(found, other)
    theirs = MISSING if alone is None else f"{alone * LAUNCH:,.1f}"
    numbers = [launches, _both(*ours, 1), MISSING if alone is None else alone, theirs]
    return [found.program, found.kind, *numbers, f"{found.least / machine.memory_rate / 1000:,.1f}"]


def _launches_of_xla(found: Found, other: xla.Bounded) -> int | None:
    """As XLA compiles a program with loops; of all others, and where that takes too long, the estimate."""
    if found.program not in {program.name for program in LOOP_PROGRAMS}:
        return found.alone
    try:
        return int(other.run(launches_of, found.program, found.kind == "gradient").count)
    except TimeoutError:
        return found.alone


def _total(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def calibration(rows: Iterable[Row]) -> list[str]:
    """Estimates of a step against the model's: how much they are off, and whether they are in the same order."""
    pairs = [(row.estimate, row.a_step) for row in rows if row.estimate and row.a_step]
    if len(pairs) < 3:
        return ["too few kernels with loops to compare estimates with"]
    ratios = sorted(estimate / modelled for estimate, modelled in pairs)
    low, median, high = statistics.quantiles(ratios, n=4)
    ranks = [np.argsort(np.argsort(each)) for each in zip(*pairs)]
    rank = statistics.correlation(*(each.tolist() for each in ranks))
    return [
        f"estimate / model of {len(pairs)} kernels with loops: median {median:.2f}, half of them {low:.2f} to "
        f"{high:.2f}, all {ratios[0]:.2f} to {ratios[-1]:.2f}; rank correlation {rank:.2f}"
    ]


def changes(before: Mapping[str, Row], after: Mapping[str, Row]) -> Iterator[list[object]]:
    """Kernels whose figures differ, those that got slower first; and those that are only there once."""
    ratios = {
        key: new / old
        for key, row in after.items()
        if (new := row.of_interest) is not None and key in before and (old := before[key].of_interest)
    }
    for key in sorted(ratios, key=lambda key: -ratios[key]):
        old, new = before[key], after[key]
        if abs(ratios[key] - 1) > CHANGED:
            numbers = [_number(old.of_interest), _number(new.of_interest), f"{ratios[key]:.2f}"]
            yield [new.title, new.kind, *numbers, old.shares, new.shares]
    for key in sorted({*before, *after} - set(ratios)):
        old_row, new_row = before.get(key), after.get(key)
        row = new_row or old_row
        assert row is not None
        numbers = [_number(each.of_interest) if each else MISSING for each in (old_row, new_row)]
        shares = [each.shares if each else MISSING for each in (old_row, new_row)]
        yield [row.title, row.kind, *numbers, MISSING, *shares]


def kernels_at(revision: str, names: Sequence[str]) -> list[Found]:
    """Those of another commit, made by its own compiler in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="jaxpr2triton-") as folder:
        packed = subprocess.run(["git", "archive", revision], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        pickled = Path(folder, "kernels.pickle")
        script = str(Path(__file__).with_name("kernels.py"))
        command = [sys.executable, script, str(pickled), *names]
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, check=True)
        return [Found(**fields) for fields in pickle.loads(pickled.read_bytes())]


def modelled(programs: Iterable[Found], target: Target) -> dict[str, tuple[Found, list[Row]]]:
    """A row for each kernel; one that runs several times has one."""
    found = {}
    for each in programs:
        print(each.program, each.kind, each.problem, file=sys.stderr, flush=True)
        found[each.key] = each, [row_of(kernel, each, target) for kernel in dict.fromkeys(each.kernels)]
    return found


def rows_of(found: Mapping[str, tuple[Found, list[Row]]]) -> dict[str, Row]:
    return {f"{key}:{row.kernel}": row for key, (_, rows) in found.items() for row in rows}


def page(tables: Sequence[tuple[str, Sequence[str], list[list[object]]]], notes: Sequence[str], target: Target) -> str:
    parts = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton"))
    again = " ".join(word for word in sys.argv[1:])
    lines = [
        f"# Cycles on {target.name}",
        "",
        f"{datetime.date.today()}, {parts}, Python {platform.python_version()}.",
        f"Modelled at {machine_of(target).clock} GHz, without a device; good for ranks and for what bounds a kernel.",
        f"To make it again: `python -m bench.cycles {again}`;",
        "`bench/cycles.py` says what the columns mean.",
    ]
    for title, header, rows in tables:
        lines += ["", f"## {title}", "", *(f"| {' | '.join(words)} |" for words in markdown_rows(header, rows))]
    return "\n".join([*lines, "", "## Estimates of schedules", "", *notes]) + "\n"


def _earlier(against: str, names: Sequence[str], target: Target) -> dict[str, Row]:
    """From a file, or from the kernels of a commit."""
    if Path(against).is_file():
        return {key: Row(**fields) for key, fields in json.loads(Path(against).read_text()).items()}
    return rows_of(modelled(kernels_at(against, names), target))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument("--target", default=DEFAULT_TARGET.name, choices=tuple(MACHINES))
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--against", metavar="FILE|REV", help="what differs from that file, or from that commit's kernels"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a page as well")
    parser.add_argument("--xla", action="store_true", help="XLA's launches as it compiles loops for an H200")
    options = parser.parse_args(words)
    missing = why_no_xla() if options.xla else ""
    target = target_named(options.target)
    found = modelled(all_kernels(options.names), target)
    rows = rows_of(found)
    if options.save:
        options.save.write_text(json.dumps({key: asdict(row) for key, row in rows.items()}, indent=1))
    with xla.Bounded(SECONDS) as bounded:
        other = bounded if options.xla and not missing else None
        programs = [program_line(*each, target, other) for each in found.values()]
    kernels = [kernel_line(row) for row in rows.values()]
    tables = [("Kernels", KERNEL_HEADER, kernels), ("Programs", PROGRAM_HEADER, programs)]
    if options.against:
        earlier = _earlier(options.against, options.names, target)
        tables.append((f"Changes since {options.against}", CHANGE_HEADER, list(changes(earlier, rows))))
    for title, header, lines in tables:
        print(f"{title}\n\n{table(header, lines, indent='')}\n")
    notes = calibration(rows.values())
    print(f"{missing}\n" if missing else "", end="")
    print("\n".join(notes))
    if options.markdown:
        options.markdown.write_text(page(tables, notes, target))
    return 1 if any(each.problem for each, _ in found.values()) or any(row.problem for row in rows.values()) else 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
