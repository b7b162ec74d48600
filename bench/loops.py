"""Programs whose time goes into loops, at full size: their kernels, what those move and take, and what their loops do.

    python -m bench.loops                          # all programs, forward; gradients too with --grad
    python -m bench.loops lorenz lstm --grad       # those whose names begin so
    python -m bench.loops noisy --check-instructions
    python -m bench.loops lstm --grad --xla        # and what XLA would launch on an H200, with JAX's CUDA plugin
    python -m bench.loops --grad --xla --markdown bench/results/loops-sm_90.md

No GPU is needed: kernels are compiled for sm_90 and disassembled, never run. In the table of kernels, `BAR` counts
the barriers inside of loops; `LDG+STG` the instructions that read and write global memory in one step of the longest
loop that has no other inside, but for those of less than 32 instructions (sines have some, with a table, for large
numbers). `--check-instructions` says of scalar programs how many floating-point instructions a thread executes in a
step, how many operations those are (a fused multiplication and addition is two), and its share of those in the source
(`Kernel.flops`, where exponentials and the like are several, and integers count too): the ratio is large where
threads are idle or do the same. A program that fails says why, and the others go on.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpr2triton as j2t
from bench import sass, xla
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from jaxpr2triton.launch.cycles.flow import Loop, innermost, loops
from jaxpr2triton.launch.cycles.sass import instructions
from jaxpr2triton.report.table import table
from tests.loop_programs import PROGRAMS, LoopProgram

TARGET = TARGETS["sm_90"]
SCALAR = ("noisy_chain", "chain_over_noise", "drawn_chain", "inference", "lorenz")  # where instructions are checked
PROGRAM_HEADER = [
    "program",
    "pass",
    "kernels",
    "launches",
    "bytes read",
    "written",
    "trace s",
    "compile s",
    "left over",
]
KERNEL_HEADER = ["kernel", "pass", "grid", "warps", "registers", "spills", "shared", "BAR", "LDG+STG", "axes"]
INSTRUCTION_HEADER = ["kernel", "pass", "instructions", "operations", "in the source", "ratio"]
XLA_HEADER = ["program", "pass", "kernels + left over", "XLA's launches", "bytes", "XLA's bytes", "XLA's loops"]
SHORT = 32  # instructions; sines have such loops inside, for large arguments
MISSING = "-"


@dataclass
class Results:
    """Rows of all tables."""

    programs: list[list[object]] = field(default_factory=list)
    kernels: list[list[object]] = field(default_factory=list)
    instructions: list[list[object]] = field(default_factory=list)
    xla: list[list[object]] = field(default_factory=list)
    failures: int = 0

    def tables(self) -> Iterable[tuple[str, Sequence[str], list[list[object]]]]:
        yield "Programs", PROGRAM_HEADER, self.programs
        yield "Kernels", KERNEL_HEADER, self.kernels
        yield "Floating-point instructions of a thread in one step", INSTRUCTION_HEADER, self.instructions
        yield "XLA on an H200", XLA_HEADER, self.xla


@dataclass(frozen=True)
class Work:
    """A program, or its gradient."""

    program: LoopProgram
    is_gradient: bool

    @property
    def title(self) -> list[object]:
        return [self.program.name, "gradient" if self.is_gradient else "forward"]

    def function(self) -> Callable[..., Any]:
        whole = replace(self.program, fn=self.program.bench_fn)
        function = whole.gradient() if self.is_gradient else whole.fn

        def named(*args: Any) -> Any:
            return function(*args)

        named.__name__ = self.program.name
        vars(named)["__signature__"] = inspect.signature(function)  # the names of the arguments
        return named

    def arguments(self) -> tuple[Any, ...]:
        """Shapes and dtypes alone."""
        assert self.program.bench_args is not None
        args = self.program.bench_args(np.random.default_rng(0))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), args)


def works(names: Sequence[str], gradients: bool) -> list[Work]:
    """Programs whose names begin so, each before its gradient."""
    chosen = [p for p in PROGRAMS if p.bench_args is not None and p.name.startswith(tuple(names) or "")]
    kinds = [(p, kind) for p in chosen for kind in (False, True)]
    return [Work(p, kind) for p, kind in kinds if not kind or (gradients and p.grad is not None)]


def measure(work: Work, results: Results, instructions: bool, other: xla.Bounded | None) -> None:
    """Fill in the rows of a program."""
    with work.program.precision():
        ours = attempt(lambda: kernels_of(work, instructions, results), work, results)
    if other is not None:
        attempt(lambda: compared(work, ours, other, results), work, results)


def attempt(step: Callable[[], Any], work: Work, results: Results) -> Any:
    """What a step gives; where it fails, its error becomes a row."""
    try:
        return step()
    except Exception as problem:  # whatever it is: the other programs are measured all the same, and the script fails
        text = " ".join(f"{type(problem).__name__}: {problem}".split())
        results.failures += 1
        results.programs.append([*work.title, *[MISSING] * (len(PROGRAM_HEADER) - 3), text[:200]])


@dataclass(frozen=True)
class Ours:
    launches: str  # kernels, and what is left over
    nbytes: int


def kernels_of(work: Work, instructions: bool, results: Results) -> Ours:
    """Compile the program and all its kernels."""
    function, args = work.function(), work.arguments()
    started = time.perf_counter()
    program = j2t.transpile(function, *args)
    traced = time.perf_counter() - started
    kernels, left = program.kernels, [each.primitive for each in program.leftovers]
    names = ", ".join(f"{left.count(name)} {name}" for name in dict.fromkeys(left))
    read, written = sum(k.bytes_read for k in kernels), sum(k.bytes_written for k in kernels)
    row = [*work.title, len(kernels), launches(kernels, left), read, written, f"{traced:.2f}"]
    results.programs.append([*row, MISSING, names])
    compiled = 0.0
    for kernel in kernels:
        started = time.perf_counter()
        try:
            compile_kernel(kernel, TARGET)
        except j2t.KernelRefused as refusal:
            results.failures += 1
            blanks = [MISSING] * (len(KERNEL_HEADER) - 5)
            results.kernels.append([kernel.name, work.title[1], *shape(kernel), *blanks, str(refusal)[:200]])
            continue
        compiled += time.perf_counter() - started
        code = code_of(kernel)
        results.kernels.append([kernel.name, work.title[1], *shape(kernel), *taken(kernel, code), axes(kernel)])
        if instructions and code.step is not None and work.program.name.startswith(SCALAR):
            results.instructions.append([kernel.name, work.title[1], *done_and_asked(kernel, code)])
    results.programs[-1][-2] = f"{compiled:.2f}"
    return Ours(f"{len(kernels)} + {len(left)}", read + written)


def launches(kernels: Sequence[Kernel], left: Sequence[str]) -> str:
    """Those of a loop that is left over are not known here."""
    more = "+" if {"scan", "while"} & set(left) else ""
    return f"{len(kernels) + len(left)}{more}"


def shape(kernel: Kernel) -> list[object]:
    grid = kernel.grid[: max((n for n, size in enumerate(kernel.grid, 1) if size > 1), default=1)]
    return [" x ".join(map(str, grid)), kernel.num_warps]


def axes(kernel: Kernel) -> str:
    return " | ".join(map(str, kernel.axes)) or "one element"


def taken(kernel: Kernel, code: Code) -> list[object]:
    """Registers of a thread, bytes that are spilled, shared memory of a program, and what happens inside of loops."""
    binary = compile_kernel(kernel, TARGET)
    needs = resources(binary)
    loops = any(axis.role is Role.LOOP for axis in kernel.axes)
    accesses = "unrolled" if loops else MISSING
    if code.step is not None:
        loads, stores = (code.step.count(kinds) / code.unrolled for kinds in (sass.LOADS, sass.STORES))
        accesses = f"{loads:.4g}+{stores:.4g}"
    return [needs.registers, needs.spills, binary.shared, code.barriers, accesses]


@dataclass(frozen=True)
class Code:
    """What matters of machine code."""

    barriers: int  # inside of loops
    step: Loop | None  # the longest loop that has no other inside
    unrolled: int  # the steps of the source that one round of it is


def code_of(kernel: Kernel) -> Code:
    found = loops(instructions(asm(kernel, TARGET, "sass")))
    barriers = len({i.address for loop in found for i in loop.instructions if i.kind == "BAR"})
    step = next(iter(innermost(found, SHORT)), None)
    asked = innermost(loops(sass.ptx_instructions(asm(kernel, TARGET, "ptx"))), SHORT)
    source = next(iter(asked), None)
    return Code(barriers, step, sass.rounds(step, source) if step is not None else 1)


def done_and_asked(kernel: Kernel, code: Code) -> list[object]:
    """Instructions and operations of a thread in a step, its share of those in the source, and their ratio.

    The source's are known by the step where there is one loop, with as many steps as it says.
    """
    assert code.step is not None
    instructions, done = (count(code.step) / code.unrolled for count in (sass.floating, sass.operations))
    measured = [f"{instructions:.1f}", f"{done:.1f}"]
    loops = [axis for axis in kernel.axes if axis.role is Role.LOOP]
    if len(loops) != 1 or loops[0].unbounded:
        return [*measured, MISSING, MISSING]
    steps = -(-loops[0].size // loops[0].block)
    asked = kernel.flops / steps / (prod(kernel.grid) * kernel.num_warps * TARGET.warp_size)
    return [*measured, f"{asked:.1f}", f"{done / asked:.2f}" if asked else MISSING]


def compared(work: Work, ours: Ours | None, other: xla.Bounded, results: Results) -> None:
    """What XLA would do with the program."""
    count, moved = (MISSING, MISSING) if ours is None else (ours.launches, ours.nbytes)
    try:
        found = other.run(launches_of, work.program.name, work.is_gradient)
    except TimeoutError:
        results.xla.append([*work.title, count, MISSING, moved, MISSING, f"after {other.seconds} s no result"])
        return
    rounds = ", ".join(found.rounds) or MISSING
    results.xla.append([*work.title, count, found.count, moved, found.nbytes, rounds])


def launches_of(name: str, is_gradient: bool) -> xla.Launches:
    (program,) = [program for program in PROGRAMS if program.name == name]
    work = Work(program, is_gradient)
    with program.precision():
        return xla.launches(work.function(), *work.arguments())


def why_no_xla() -> str:
    try:
        xla.device()
    except Exception as problem:  # JAX raises whatever the missing plugin makes it stumble over
        return f"XLA is left out: JAX's CUDA plugin cannot be used here ({' '.join(str(problem).split())[:100]})"
    return ""


def markdown(results: Results, options: Sequence[str]) -> str:
    """All tables as a page."""
    parts = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton"))
    lines = [
        "# Loops on sm_90",
        "",
        f"{datetime.date.today()}, {parts}, Python {platform.python_version()}; compiled for sm_90 without a device.",
        f"To make it again: `python -m bench.loops {' '.join(options)}`; `bench/loops.py` says what the columns mean.",
    ]
    for title, header, rows in results.tables():
        if rows:
            lines += ["", f"## {title}", ""] + ([*xla.GRAPHS.splitlines(), ""] if header is XLA_HEADER else [])
            lines += [f"| {' | '.join(words)} |" for words in markdown_rows(header, rows)]
    return "\n".join(lines) + "\n"


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterable[Sequence[str]]:
    numbers = [any(isinstance(row[n], int) for row in rows) for n in range(len(header))]
    yield header
    yield ["---:" if is_number else "---" for is_number in numbers]
    for row in rows:
        yield [f"{cell:,}" if isinstance(cell, int) else str(cell).replace(" | ", "; ") for cell in row]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    parser.add_argument("--grad", action="store_true", help="the gradients too")
    parser.add_argument("--xla", action="store_true", help="what XLA would launch on an H200")
    parser.add_argument(
        "--xla-seconds", type=int, default=60, metavar="N", help="for each program, before XLA is given up"
    )
    parser.add_argument("--check-instructions", action="store_true", help="floating-point instructions of scalar loops")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to a page as well")
    options = parser.parse_args(arguments)
    missing = why_no_xla() if options.xla else ""
    results = Results()
    with xla.Bounded(options.xla_seconds) as other:
        for work in works(options.names, options.grad):
            print(*work.title, file=sys.stderr, flush=True)
            measure(work, results, options.check_instructions, other if options.xla and not missing else None)
    for title, header, rows in results.tables():
        if rows:
            print(f"{title}\n\n{table(header, rows, indent='')}\n")
    if missing:
        print(missing)
    if options.markdown:
        options.markdown.write_text(markdown(results, sys.argv[1:] if arguments is None else arguments))
    return 1 if results.failures else 0


if __name__ == "__main__":
    os.environ |= {"J2T_CACHE": "0", "JAX_PLATFORMS": "cpu"}  # what is found on disk is not compiled
    jax.config.update("jax_platforms", "cpu")
    sys.exit(main())
