"""All schedules that kernels with loops can choose from, compiled: what was estimated of them, and what the model says.

    python -m bench.candidates                       # all programs with loops, and their gradients, at full size
    python -m bench.candidates hmc sinkhorn --all    # those whose names begin so, and each of their candidates
    python -m bench.candidates --known cycles.json   # what was modelled before is not compiled again
    python -m bench.candidates --markdown bench/results/candidates-sm_90.md

A schedule is chosen by `plan/schedule/cost.py`, which has an estimate of a step. Here each candidate is compiled for
--target (sm_90), never run, and its machine code is modelled (`bench.cycles` says how). `loss` is how many times longer
the chosen one takes than the best one would, by that model: whole kernels, or one step where the device finds out how
many there are. The rank correlation says whether the estimates of a kernel's candidates are in the right order.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

import jaxpr2triton as j2t
from bench.loops import Work, markdown_rows, works
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.hardware import DEFAULT_TARGET, Target, target_named
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.launch.cycles.latencies import MACHINES
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.plan.schedule.schedule import schedules
from jaxpr2triton.report.table import table

GOOD = 1.25  # times as long as the best: no model tells them apart
HEADER = ["kernel", "pass", "candidates", "chosen", "estimate", "model", "best", "estimate", "model", "loss", "rank"]
EACH_HEADER = ["kernel", "pass", "candidate", "estimate", "instructions", "barriers", "kept", "model", "times the best"]
MISSING = "-"


@dataclass(frozen=True)
class Tried:
    """A candidate: what was estimated of a step, and what its machine code takes."""

    plan: Plan
    cycles: float | None  # None: it is refused

    @property
    def estimate(self) -> int:
        assert self.plan.choice is not None
        return self.plan.choice.chosen.cycles

    @property
    def title(self) -> str:
        """What tells it from the others: grid, lanes and variables, and warps."""
        shown = [str(each) for each in self.plan.kernel_axes() if each.role is not Role.LOOP or each.block > 1]
        words = [*shown, "1 warp" if self.plan.num_warps == 1 else f"{self.plan.num_warps} warps"]
        if self.plan.form is not None:
            words.append(self.plan.form.value)
        return "; ".join(words)


@dataclass(frozen=True)
class Compared:
    """The candidates of one kernel, the chosen one first."""

    program: str
    kind: str
    tried: tuple[Tried, ...]

    @property
    def name(self) -> str:
        kernel = self.tried[0].plan.name
        return kernel if kernel.startswith(self.program) else f"{self.program}: {kernel}"

    @property
    def known(self) -> list[tuple[float, Tried]]:
        return [(each.cycles, each) for each in self.tried if each.cycles]

    @property
    def best(self) -> Tried | None:
        return min(self.known, key=lambda each: each[0])[1] if self.known else None

    @property
    def loss(self) -> float | None:
        chosen, best = self.tried[0].cycles, self.best
        return chosen / best.cycles if chosen and best is not None and best.cycles else None

    @property
    def rank(self) -> float | None:
        """The correlation of the candidates' places in both orders."""
        pairs = [(each.estimate, cycles) for cycles, each in self.known]
        if len(pairs) < 3:
            return None
        ranks = [np.argsort(np.argsort(column, kind="stable")).tolist() for column in zip(*pairs)]
        return statistics.correlation(*ranks)


@dataclass
class Known:
    """What was modelled before, by what was compiled."""

    path: Path | None
    cycles: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.is_file():
            self.cycles = json.loads(self.path.read_text())

    def of(self, kernel: Kernel, target: Target) -> float | None:
        words = (kernel.source, kernel.num_warps, kernel.num_stages, kernel.grid, target.name, version("triton"))
        key = hashlib.sha256(repr(words).encode()).hexdigest()
        if key not in self.cycles:
            self.cycles[key] = _modelled(kernel, target)
            if self.path is not None:
                self.path.write_text(json.dumps(self.cycles, indent=0))
        return self.cycles[key]


def _modelled(kernel: Kernel, target: Target) -> float | None:
    try:
        cycles = cycles_of(kernel, target)
    except j2t.KernelRefused:
        return None
    return cycles.whole or cycles.a_step


def compared(work: Work, known: Known, target: Target) -> Iterator[Compared]:
    """Each kernel of a program that has several schedules to choose from."""
    name, kind = map(str, work.title)
    with work.program.precision():
        program = j2t.transpile(work.function(), *work.arguments())
        for plan in program.stages["schedule"].plans:
            if plan.choice is None:
                continue
            plans = schedules(plan.jaxpr, plan.name, 0, plan.roles, plan.policy)
            tried = tuple(Tried(each, known.of(emit(each, graph_of(each)), target)) for each in plans)
            yield Compared(name, kind, tried)


def line(each: Compared) -> list[object]:
    chosen, best = each.tried[0], each.best
    if best is None:
        return [each.name, each.kind, len(each.tried), chosen.title, chosen.estimate, *[MISSING] * 6]
    ratios = [MISSING if number is None else f"{number:.2f}" for number in (each.loss, each.rank)]
    other = ["the same", MISSING, MISSING] if best is chosen else [best.title, best.estimate, _number(best.cycles)]
    first = [chosen.title, chosen.estimate, _number(chosen.cycles)]
    return [each.name, each.kind, len(each.tried), *first, *other, *ratios]


def lines_of_each(each: Compared) -> Iterator[list[object]]:
    least = each.best.cycles if each.best is not None else None
    for tried in each.tried:
        assert tried.plan.choice is not None
        said = tried.plan.choice.chosen
        numbers = [said.cycles, said.instructions, said.barriers, said.kept, _number(tried.cycles)]
        ratio = f"{tried.cycles / least:.2f}" if tried.cycles and least else MISSING
        yield [each.name, each.kind, tried.title, *numbers, ratio]


def _number(number: float | None) -> object:
    return MISSING if number is None else round(number)


def summary(found: Sequence[Compared]) -> list[str]:
    losses = sorted((each.loss, f"{each.name} ({each.kind})") for each in found if each.loss is not None)
    ranks = [each.rank for each in found if each.rank is not None]
    if not losses:
        return ["no kernel has several schedules"]
    good = sum(loss <= GOOD for loss, _ in losses)
    mean = statistics.geometric_mean(loss for loss, _ in losses)
    notes = [
        f"{good} of {len(losses)} kernels take at most {GOOD} times as long as their best candidate; "
        f"in the mean {mean:.3f} times, at most {losses[-1][0]:.2f} times ({losses[-1][1]})"
    ]
    return notes + ([f"rank correlation: median {statistics.median(ranks):.2f}"] if ranks else [])


def page(rows: list[list[object]], notes: Sequence[str], target: Target) -> str:
    parts = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton"))
    lines = [
        f"# Schedules to choose from, on {target.name}",
        "",
        f"{datetime.date.today()}, {parts}, Python {platform.python_version()}.",
        "Modelled, without a device. To make it again: `python -m bench.candidates --markdown "
        "bench/results/candidates-sm_90.md`;",
        "`bench/candidates.py` says what the columns mean.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(HEADER, rows)),
        "",
        *notes,
    ]
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument("--target", default=DEFAULT_TARGET.name, choices=tuple(MACHINES))
    parser.add_argument("--all", action="store_true", help="a line for each candidate as well")
    parser.add_argument("--known", type=Path, metavar="FILE", help="keep what was modelled in this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a page as well")
    options = parser.parse_args(words)
    target, known = target_named(options.target), Known(options.known)
    found: list[Compared] = []
    for work in works(options.names, True):
        print(*work.title, file=sys.stderr, flush=True)
        for each in compared(work, known, target):
            found.append(each)
            if options.all:
                print(table(EACH_HEADER, list(lines_of_each(each)), indent=""), flush=True)
    rows, notes = [line(each) for each in found], summary(found)
    print(table(HEADER, rows, indent=""))
    print("\n".join(notes))
    if options.markdown:
        options.markdown.write_text(page(rows, notes, target))
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
