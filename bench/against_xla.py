"""What programs take as kernels, beside what XLA is estimated to take for the same equations; the worst first.

    python -m bench.against_xla                              # all programs at full size, and their gradients
    python -m bench.against_xla lstm "1024 bodies"           # those whose names begin so
    python -m bench.against_xla --above 1.2                  # and exit 1 if a ratio is larger
    python -m bench.against_xla --markdown bench/results/against-xla-h100.md

No GPU is needed: nothing is compiled or run. Both sides are estimates of `pipeline/beside_xla.py`, with launches, what
passes through memory and what is computed; the planner decides by the same ones for each loop. *programs* are those of
the kernel that takes longest, and the processors of the device. *measured* is the quotient of the same two on an H100,
where `bench/results/device.jsonl` has them; those kernels may have been others. With a star a loop ends when the device
says so, and has two steps on both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import math
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpr2triton as j2t
from bench.device import cases, store, ways
from bench.device.pages_markdown import markdown
from examples.algorithms.__main__ import algorithms
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.pipeline.kernel_time import busy_of
from jaxpr2triton.pipeline.xla_time import launches_alone, time_of_xla
from jaxpr2triton.report.table import table
from tests.standin.full_size import GALLERY
from tests.works import Work

HEADER = ["program", "pass", "ours µs", "kernels", "launches", "XLA µs", "launches of XLA", "ratio", "programs"]
MISSING = "-"
ABOVE = (1.2, 1.0)
WHY = {  # where the estimate of XLA is known to be too low
    "column_sum": "XLA sums what is long in two launches, of which one is counted",
    "full_mean": "the same",
    "sum_of_atan2": "the same",
    "sum_of_squares": "the same",
    "transposes": "results of two layouts are two launches, of which one is counted: as quick on a device",
    "Lucas Kanade 128 by 128": "XLA launches sums of windows, so a step is six launches, and those are a graph; where "
    "the loop is left to it they are written out, and a step is four launches, which are none",
    "radix_sort": "what would be left to XLA is the loop as it is rewritten, for which its estimate is 1,840 µs",
}
DEVICE = "H100"  # whose measurements are beside the estimates


@dataclass(frozen=True)
class Asked:
    """A program and the sizes of its arguments."""

    place: tuple[str, str, str, str]  # as in bench/results/device.jsonl
    function: Callable[..., Any]
    sizes: Callable[[], tuple[Any, ...]]
    context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


@dataclass(frozen=True)
class Compared:
    asked: Asked
    ours: float  # µs
    other: float
    kernels: int
    launches: int
    other_launches: int
    programs: str
    has_loops: bool
    assumed: bool  # whether the device finds out how many steps there are
    measured: tuple[float, float] | None = None  # µs of ours, and of `jax.jit`

    @property
    def ratio(self) -> float:
        return self.ours / self.other

    @property
    def line(self) -> list[str]:
        _, name, kind, _ = self.asked.place
        star = " \\*" if self.assumed else ""
        times = [_short(self.ours), f"{self.kernels:,}", f"{self.launches:,}", _short(self.other)]
        measured = MISSING if self.measured is None else f"{self.measured[0] / self.measured[1]:.2f}"
        return [name, kind, *times, f"{self.other_launches:,}", f"{self.ratio:.2f}{star}", self.programs, measured]


def everything(names: Sequence[str]) -> Iterator[Asked]:
    """The programs that are timed on a device, the gallery, and the algorithms of the examples."""
    for case in cases.timed_cases():
        yield Asked(case.place, case.function, lambda case=case: case.shapes, case.context)
    for program in GALLERY:
        for work in (Work(program, False), *([Work(program, True)] if program.grad is not None else [])):
            kind = cases.GRADIENTS if work.is_gradient else cases.FORWARD
            place = "gallery", program.name, kind, cases.FULL
            yield Asked(place, work.function(), functools.partial(jax.eval_shape, work.arguments))
    for algorithm in algorithms().values():
        function, args = algorithm.large()
        yield Asked(("algorithms", algorithm.name, cases.FORWARD, cases.FULL), function, lambda args=args: args)
        if algorithm.by:
            place = ("algorithms", algorithm.name, cases.GRADIENTS, cases.FULL)
            yield Asked(place, algorithm.gradient(function), lambda args=args: args)


def compared(asked: Asked, measured: Mapping[tuple[str, ...], tuple[float, float]]) -> Compared:
    with asked.context():
        made = j2t.transpile(asked.function, *asked.sizes(), for_target=DEFAULT_TARGET.name)
    compiled = made.compiled
    policy = compiled.policy
    ours = compiled.taken.priced(policy.products.launch_after_gap_us)
    other = time_of_xla(compiled.stages["trace"], policy)
    longest = max(compiled.all_kernels, key=lambda kernel: busy_of(kernel, policy), default=None)
    programs = MISSING if longest is None else f"{math.prod(longest.grid):,} of {policy.target.processors}"
    unknown = [each.steps is None for _, each in launches_alone(compiled.stages["trace"], policy).loops]
    return Compared(
        asked,
        ours.microseconds,
        other.microseconds,
        len(dict.fromkeys(compiled.all_kernels)),
        ours.launches,
        other.launches,
        programs,
        bool(unknown),
        any(unknown),
        measured.get(asked.place),
    )


def measured_on(device: str) -> dict[tuple[str, ...], tuple[float, float]]:
    """Microseconds of ours and of `jax.jit`, by programs."""
    results = store.read(store.RESULTS)
    best: dict[tuple[str, ...], dict[str, float]] = {}
    for (where, _), rows in results.rows.items():
        for row in rows if device in where else []:
            if row.aim == "time" and row.best is not None and row.way in (ways.OURS, ways.JIT):
                best.setdefault((row.family, row.program, row.kind, row.sizes), {})[row.way] = row.best
    return {place: (each[ways.OURS], each[ways.JIT]) for place, each in best.items() if len(each) == 2}


def predicted(found: Sequence[Compared]) -> Iterator[str]:
    """How well estimates predict what was measured, of programs with loops and of others."""
    for has_loops, what in ((True, "with loops"), (False, "without")):
        known = [each for each in found if each.measured and each.has_loops == has_loops and not each.assumed]
        both = [(each.ratio, each.measured[0] / each.measured[1]) for each in known if each.measured]
        if len(both) < 3:
            yield f"too few programs {what} were measured to compare estimates with"
            continue
        low, median, high = statistics.quantiles([estimate / truth for estimate, truth in both], n=4)
        ranks = [np.argsort(np.argsort(each)).tolist() for each in zip(*both)]
        clear = [(estimate, truth) for estimate, truth in both if not 1 / ABOVE[0] < truth < ABOVE[0]]
        sides = sum((estimate > 1) == (truth > 1) for estimate, truth in clear)
        yield (
            f"{len(both)} programs {what} were measured: estimated ratio / measured one is {median:.2f} in the median, "
            f"{low:.2f} to {high:.2f} in half of them; rank correlation {statistics.correlation(*ranks):.2f}; of "
            f"{len(clear)} that are {ABOVE[0]:g} times as fast or slow {sides} are on the right side of 1"
        )
    lost = [each.asked.place for each in found if each.measured and each.measured[0] > ABOVE[0] * each.measured[1]]
    yield f"measured above {ABOVE[0]:g}: {', '.join(f'{name} {kind}' for _, name, kind, _ in lost) or 'none'}"


def page(found: Sequence[Compared], notes: Sequence[str]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton"))
    columns = {name: [each.line[n] for each in found] for n, name in enumerate([*HEADER, "measured"])}
    lines = [
        f"# Kernels against XLA, estimated for {DEFAULT_TARGET.name}",
        "",
        f"{datetime.date.today()}, commit {commit.stdout.strip()}, {versions}, Python {platform.python_version()}.",
        "Both sides are estimates, without a device; `bench/against_xla.py` says what the columns mean.",
        "To make it again: `python -m bench.against_xla --markdown bench/results/against-xla-h100.md`.",
        "",
        *(f"- {note}" for note in notes),
        "",
        *markdown(columns),
    ]
    return "\n".join(lines) + "\n"


def _short(time: float) -> str:
    return f"{time:,.1f}" if time < 100 else f"{time:,.0f}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument(
        "--above", type=float, default=math.inf, metavar="RATIO", help="exit 1 if one is larger and nobody knows why"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a page as well")
    options = parser.parse_args(words)
    measured = measured_on(DEVICE)
    found, failed = [], []
    for asked in everything(options.names):
        title = " ".join(asked.place[1:3])
        if not asked.place[1].startswith(tuple(options.names) or ""):
            continue
        print(title, file=sys.stderr, flush=True)
        try:
            found.append(compared(asked, measured))
        except Exception as problem:  # whatever it is: the others are looked at all the same, and this one is named
            failed.append(f"{title}: {type(problem).__name__}: {' '.join(str(problem).split())[:200]}")
    found.sort(key=lambda each: -each.ratio)
    above = [each for each in found if each.ratio > options.above and each.asked.place[1] not in WHY]
    notes = [f"{sum(each.ratio > least for each in found)} of {len(found)} programs above {least:g}" for least in ABOVE]
    known = [name for name in WHY if any(each.asked.place[1] == name and each.ratio > ABOVE[0] for each in found)]
    notes += [*(f"{name}: {WHY[name]}" for name in known), *predicted(found), *failed]
    print(table([*HEADER, "measured"], [each.line for each in found], indent=""))
    print("", *notes, sep="\n")
    if options.markdown:
        options.markdown.write_text(page(found, notes))
    return 1 if failed or above else 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
