"""What the kernels of the named programs move, against the least possible, and what they take of the device.

    python -m bench.bytes                        # all programs with sizes for benchmarks
    python -m bench.bytes layer_norm softmax     # those whose names begin so
    python -m bench.bytes --no-resources         # without compiling: registers and spills are left out
    python -m bench.bytes --rows                 # gradients of what goes by rows, for many numbers of rows
    python -m bench.bytes --rows --markdown bench/results/rows-sm_90.md

No GPU is needed: kernels are compiled for --target (sm_90) and assembled, never run.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxpr2triton as j2t
from bench.loops import markdown_rows
from jaxpr2triton.hardware import DEFAULT_TARGET, TARGETS, Target, target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from jaxpr2triton.report.explain import least_bytes
from jaxpr2triton.report.table import table
from tests.programs import PROGRAMS, Program, layer_norm, rms_norm

MEASURES = ("kernels", "left", "bytes moved", "inputs + outputs", "ratio")


class Shapes:
    """Stands for a random generator where only shapes and dtypes matter: all its numbers are one, in no memory."""

    def standard_normal(self, shape: Any = ()) -> np.ndarray:
        return np.broadcast_to(np.ones(()), shape)

    random = standard_normal

    def uniform(self, low: float, high: float, shape: Any = ()) -> np.ndarray:
        return self.standard_normal(shape)

    def integers(self, low: int, high: int, shape: Any = (), dtype: Any = np.int64) -> np.ndarray:
        return np.broadcast_to(np.ones((), dtype), shape)


def arguments(program: Program) -> tuple[Any, ...]:
    """The shapes of a program's arguments in benchmarks."""
    assert program.bench_args is not None
    generator: Any = Shapes()
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype), program.bench_args(generator)
    )


def rows(program: Program, target: Target | None) -> Iterator[list[object]]:
    """One row for the program, and two for its gradient."""
    args = arguments(program)
    plain = j2t.transpile(program.fn, *args)
    yield [program.name, "values", *_measures(plain, target)]
    if program.grad is not None:
        pair = j2t.transpile(program.fn, *args, grad=program.grad)
        yield ["", "forward", *_measures(pair.forward, target)]
        yield ["", "backward", *_measures(pair.backward, target)]


def _measures(program: j2t.Program, target: Target | None) -> list[object]:
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in program.kernels)
    least = least_bytes(program.summary)
    ratio = f"{moved / least:.3f}" if least else "-"
    found = [len(program.kernels), len(program.leftovers), moved, least, ratio]
    return [*found, *_resources(program.kernels, target)] if target else found


def _resources(kernels: Sequence[Kernel], target: Target) -> list[object]:
    """The most registers of a thread, and the bytes that all kernels spill."""
    try:
        taken = [resources(compile_kernel(kernel, target)) for kernel in kernels]
    except j2t.KernelRefused as refusal:
        return [str(refusal), ""]
    return [max((each.registers for each in taken), default=0), sum(each.spills for each in taken)]


ROWS = (
    *(1, 7, 64, 100, 129, 500, 1000, 1024, 1031, 2047),
    *(2048, 2050, 3000, 4096, 4099, 8191, 8192, 10007, 50021, 100_003),
)
COLUMNS = (768, 100, 1000, 1024)


def softmax_of_weighted(x: Any, weights: Any) -> Any:
    return jax.nn.softmax(x * weights)


def by_rows(target: Target | None) -> Iterator[list[object]]:
    """What goes by rows: its backward pass reads each row once, however many there are."""
    cases = [(layer_norm, 2, columns) for columns in COLUMNS] + [(rms_norm, 1, 768), (softmax_of_weighted, 1, 768)]
    for fn, weights, columns in cases:
        for number in ROWS:
            shapes = ((number, columns), *((columns,),) * weights)
            args = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
            pair = j2t.transpile(fn, *args, grad=tuple(range(len(args))))
            programs = math.prod(pair.backward.kernels[0].grid)
            yield [fn.__name__, f"{number:,} x {columns}", programs, *_measures(pair.backward, target)]


def whole(target: Target | None) -> Iterator[list[object]]:
    """A layer norm and its gradients in one program."""

    def value_and_gradients(x: Any, scale: Any, bias: Any, ct: Any) -> Any:
        value, pull = jax.vjp(layer_norm, x, scale, bias)
        return value, *pull(ct)

    for number, columns in itertools.product((1000, 8191, 8192), (768, 1024, 4096)):
        shapes = ((number, columns), (columns,), (columns,), (number, columns))
        program = j2t.transpile(value_and_gradients, *(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes))
        programs = math.prod(program.kernels[0].grid)
        yield ["layer_norm, vjp", f"{number:,} x {columns}", programs, *_measures(program, target)]


def page(header: Sequence[str], found: Sequence[Sequence[object]], target: Target) -> str:
    """The table of rows as a page."""
    made_with = ", ".join(f"{name} {version(name)}" for name in ("jax", "triton"))
    again = f"python -m bench.bytes {' '.join(sys.argv[1:])}"
    lines = [
        f"# Gradients by rows on {target.name}",
        "",
        f"{datetime.date.today()}, {made_with}, Python {platform.python_version()}; compiled without a device.",
        f"To make it again: `{again}`. Backward passes of f32 arrays, and of one the whole program;",
        "`programs` are those of the first kernel, `registers` the most of a thread.",
        "",
        *(f"| {' | '.join(words)} |" for words in markdown_rows(header, found)),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    cuda = [name for name, target in TARGETS.items() if target.backend == "cuda"]
    parser.add_argument("--target", default=DEFAULT_TARGET.name, choices=cuda)
    parser.add_argument("--no-resources", action="store_true")
    parser.add_argument("--rows", action="store_true", help="gradients of what goes by rows, for many numbers of rows")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table of --rows to a page as well")
    options = parser.parse_args()
    target = None if options.no_resources else target_named(options.target)
    resources = ["registers", "spilled"] if target else []
    if options.rows:
        header = ["program", "rows x columns", "programs", *MEASURES, *resources]
        found = [*by_rows(target), *whole(target)]
        print(table(header, found, indent=""))
        if options.markdown:
            options.markdown.write_text(page(header, found, target_named(options.target)))
        return
    found = []
    for program in PROGRAMS:
        if program.bench_args is not None and program.name.startswith(tuple(options.names) or ""):
            with jax.enable_x64("x64" in program.tags):
                found += rows(program, target)
    print(table(["program", "pass", *MEASURES, *resources], found, indent=""))


if __name__ == "__main__":
    main()
