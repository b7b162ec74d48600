"""The kernels of programs at full size: those with loops, and the others that have sizes for benchmarks.

Run as a script in the folder of another commit (`bench.cycles --against REV`), it pickles that commit's:

    python bench/kernels.py FILE [NAME ...]
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

import jaxpr2triton as j2t
from bench.bytes import arguments
from bench.loops import works
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.report.explain import least_bytes
from tests.programs import PROGRAMS


@dataclass(frozen=True)
class Found:
    """A program, or its gradient, as kernels."""

    program: str
    kind: str  # forward, gradient or backward
    kernels: tuple[Kernel, ...]
    leftovers: int
    alone: int | None  # launches of XLA alone, about; None where the device finds out how long a loop is
    least: int  # bytes of its inputs and outputs
    problem: str = ""  # why there are no kernels

    @property
    def key(self) -> str:
        return f"{self.program}:{self.kind}"


def all_kernels(names: Sequence[str]) -> Iterator[Found]:
    """Of programs whose names begin so."""
    for work in works(names, True):
        with work.program.precision():
            name, kind = map(str, work.title)
            yield from _tried(name, kind, work.function, work.arguments)
    for program in PROGRAMS:
        if program.bench_args is not None and program.name.startswith(tuple(names) or ""):
            with jax.enable_x64("x64" in program.tags):
                made = functools.partial(arguments, program)
                yield from _tried(program.name, "forward", lambda fn=program.fn: fn, made)
                if program.grad is not None:
                    yield from _tried(program.name, "backward", lambda fn=program.fn: fn, made, program.grad)


def _tried(name: str, kind: str, function: Any, args: Any, grad: Any = None) -> Iterator[Found]:
    """What it was made into; of a gradient, the backward program."""
    try:
        made = j2t.transpile(function(), *args(), grad=grad)
    except Exception as problem:  # whatever it is: the others are looked at all the same, and this one is named
        yield Found(name, kind, (), 0, None, 0, f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}")
        return
    program = made if grad is None else made.backward
    least = least_bytes(program.summary)
    yield Found(name, kind, program.kernels, len(program.leftovers), program.summary.alone.in_all, least)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    Path(sys.argv[1]).write_bytes(pickle.dumps([vars(found) for found in all_kernels(sys.argv[2:])]))
