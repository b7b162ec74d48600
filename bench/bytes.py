"""What the kernels of the named programs move, against the least possible, and what they take of the device.

    python -m bench.bytes                        # all programs with sizes for benchmarks
    python -m bench.bytes layer_norm softmax     # those whose names begin so
    python -m bench.bytes --no-resources         # without compiling: registers and spills are left out

No GPU is needed: kernels are compiled for --target (sm_90) and assembled, never run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

import jaxpr2triton as j2t
from jaxpr2triton.hardware import DEFAULT_TARGET, TARGETS, Target, target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile import compile_kernel, resources
from jaxpr2triton.report.explain import least_bytes
from jaxpr2triton.report.table import table
from tests.programs import PROGRAMS, Program


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
    least = least_bytes(program.compiled)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of programs' names; all without any")
    cuda = [name for name, target in TARGETS.items() if target.backend == "cuda"]
    parser.add_argument("--target", default=DEFAULT_TARGET.name, choices=cuda)
    parser.add_argument("--no-resources", action="store_true")
    options = parser.parse_args()
    target = None if options.no_resources else target_named(options.target)
    found: list[list[object]] = []
    for program in PROGRAMS:
        if program.bench_args is not None and program.name.startswith(tuple(options.names) or ""):
            with jax.enable_x64("x64" in program.tags):
                found += rows(program, target)
    header = ["program", "pass", "kernels", "left", "bytes moved", "inputs + outputs", "ratio"]
    print(table([*header, "registers", "spilled"] if target else header, found, indent=""))


if __name__ == "__main__":
    main()
