"""What one call launches, ours beside `jax.jit`, counted by a stand-in CUDA driver that has no device behind it.

    python -m bench.launched                         # the gallery and all programs with loops, with gradients
    python -m bench.launched lstm gallery            # those whose names begin so
    python -m bench.launched --markdown bench/results/standin.md

JAX's whole CUDA backend runs, and the driver (`tests/standin`) counts what it is asked to do; nothing is computed, and
no time means anything. K are kernels, G launches of CUDA graphs (in parentheses what is in them, all in all), C copies
and fills of memory, S waits of the host. Where a condition would have been computed on the device, the stand-in says
that the loop runs 100 rounds, and that the first branch is taken; the page marks those with a star.

XLA's matrix products are kernels of its own here, where a real machine mostly has cuBLAS (a launch either way), and
nothing is autotuned. Programs are counted in processes of their own, one for each column, with a limit for each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.standin.build import why_not
from tests.standin.full_size import full_size

ROOT = Path(__file__).parents[1]
DEFAULT = ""
STRONGEST = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"
GUESSED = "\\*"
SOLVER_MISSING = "needs cuSOLVER, which is not there"


@dataclass(frozen=True)
class Column:
    title: str
    who: str
    flags: str


COLUMNS = (
    Column("jax.jit", "jax.jit", DEFAULT),
    Column("jax.jit, strongest flags", "jax.jit", STRONGEST),
    Column("ours", "ours", DEFAULT),
    Column("ours, strongest flags", "ours", STRONGEST),
)

Facts = Mapping[str, Any]


def counted(column: Column, titles: Sequence[str], seconds: int) -> dict[str, Facts]:
    """What each program takes; one that takes too long says so, and the others are counted by another process."""
    found: dict[str, Facts] = {}
    environment = {**os.environ, "XLA_FLAGS": column.flags, "JAX_PLATFORMS": "cuda,cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    while left := [title for title in titles if title not in found]:
        words = [sys.executable, "-m", "tests.standin.counting", str(seconds), column.who, *left]
        with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                facts = json.loads(line)
                found[facts["title"]] = facts
                print(column.title, line.strip(), file=sys.stderr, flush=True)
        stopped = next((title for title in left if title not in found), None)
        if stopped is not None:
            why = f"nothing after {seconds} s" if process.returncode == -14 else f"exit {process.returncode}"
            found[stopped] = {"problem": why}
    return found


def shown(facts: Facts) -> str:
    """100 G (400 K, 200 C) + 2 K, 3 S"""
    if "problem" in facts:
        return SOLVER_MISSING if "cuSolver" in facts["problem"] else str(facts["problem"]).replace("|", "/")
    inside = joined(", ", ((facts["kernels_in_graphs"], "K"), (facts["copies_in_graphs"], "C")))
    graphs = f"{facts['graphs']:,} G ({inside})" if facts["graphs"] else ""
    alone = joined(" + ", ((facts["kernels"], "K"), (facts["copies"], "C")))
    asked = " + ".join(part for part in (graphs, alone) if part) or "nothing"
    waits = f", {facts['synchronisations']:,} S" if facts["synchronisations"] else ""
    return f"{asked}{waits}{f' {GUESSED}' if facts['guesses'] else ''}"


def joined(between: str, parts: Iterable[tuple[int, str]]) -> str:
    return between.join(f"{count:,} {what}" for count, what in parts if count)


def calls(facts: Facts) -> int:
    """What the host asks for."""
    return facts["kernels"] + facts["graphs"] + facts["copies"]


def launched(facts: Facts) -> int:
    """What the device starts."""
    return facts["kernels"] + facts["kernels_in_graphs"] + facts["copies"] + facts["copies_in_graphs"]


def page(rows: Sequence[tuple[str, Sequence[Facts]]], options: Sequence[str]) -> str:
    parts = ", ".join(f"{name} {version(name)}" for name in ("jax", "jax-cuda13-plugin", "triton"))
    lines = [
        "# What one call launches",
        "",
        f"{datetime.date.today()}, {parts}, Python {platform.python_version()}; counted by a stand-in CUDA",
        "driver that has no device behind it (`tests/standin`) and calls itself an H100. Nothing is computed or timed.",
        f"To make it again: `{' '.join(['python -m bench.launched', *options])}`.",
        "",
        "K are kernels, G launches of CUDA graphs (in parentheses what they hold, all in all), C copies and fills of",
        "memory, S waits of the host. It is the third call: what is compiled, loaded and recorded once is not in it.",
        "Rows with `gradient` take the program and its gradient. Strongest flags are",
        f"`{STRONGEST}`.",
        f"With a star ({GUESSED}) a condition would have been computed on the device: the stand-in says that such a",
        "loop runs 100 rounds and that the first branch is taken, so those counts compare kinds of launches and not",
        "programs. XLA's matrix products are Triton kernels of its own here, where a real machine mostly has cuBLAS.",
        "Of a gradient of ours one kernel or more is XLA's: it writes the ones that the gradient begins with. `nothing",
        "after` so many seconds: XLA was still compiling it, or running it.",
        "",
        *markdown_table(rows),
        "",
        *(f"- {line}" for line in summary(rows)),
    ]
    return "\n".join(lines) + "\n"


def markdown_table(rows: Sequence[tuple[str, Sequence[Facts]]]) -> Iterable[str]:
    yield f"| program | {' | '.join(column.title for column in COLUMNS)} |"
    yield f"| --- |{' --- |' * len(COLUMNS)}"
    for title, each in rows:
        yield f"| {title} | {' | '.join(map(shown, each))} |"


def summary(rows: Sequence[tuple[str, Sequence[Facts]]]) -> Iterable[str]:
    """For each column: rows whose host asks for one thing, and those where it waits; then sums where all is known."""
    whole = [each for _, each in rows if not any("problem" in facts or facts["guesses"] for facts in each)]
    for number, column in enumerate(COLUMNS):
        facts = [each[number] for _, each in rows if "problem" not in each[number]]
        once = sum(calls(each) == 1 for each in facts)
        waiting = sum(each["synchronisations"] > 0 for each in facts)
        yield (
            f"{column.title}: {once} of {len(facts)} rows are one call of the driver, {waiting} wait inside; in the "
            f"{len(whole)} rows without a star or a problem {sum(calls(each[number]) for each in whole):,} calls, and "
            f"{sum(launched(each[number]) for each in whole):,} kernels and copies"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument("--seconds", type=int, default=90, metavar="N", help="for each program, before it is given up")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to a page as well")
    options = parser.parse_args(arguments)
    if reason := why_not():
        print(reason)
        return 1
    titles = [str(work) for work in full_size() if str(work).startswith(tuple(options.names) or "")]
    columns = [counted(column, titles, options.seconds) for column in COLUMNS]
    rows = [(title, [column[title] for column in columns]) for title in titles]
    print("\n".join([*markdown_table(rows), "", *summary(rows)]))
    if options.markdown:
        options.markdown.write_text(page(rows, sys.argv[1:] if arguments is None else arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
