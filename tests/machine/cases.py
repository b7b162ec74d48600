"""Kernels of whole programs, each with the arrays that it is handed there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import Binary
from jaxpr2triton.launch.machine.kernels import Examined, compiled_for_machine, examine, program_of
from jaxpr2triton.launch.machine.run import Program, Settings
from jaxpr2triton.pipeline import compiled_program as compiled_programs
from tests.loop_programs import LoopProgram

EVERYTHING = Settings()
FULL = Settings(programs=range(2), budget=3 * 10**6)  # of kernels whose sizes are those of benchmarks


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    kernel: Kernel
    inputs: tuple[np.ndarray, ...]
    settings: Settings = EVERYTHING

    def __str__(self) -> str:
        return self.name

    @property
    def binary(self) -> Binary:
        return compiled_for_machine(self.kernel, target_named("sm_90"))

    @property
    def program(self) -> Program:
        return program_of(str(self.binary.code), self.kernel.source)

    def run(self, program: Program | None = None, **settings: Any) -> Examined:
        return examine(self.kernel, self.binary, self.inputs, replace(self.settings, **settings), program)

    def with_warps(self, warps: int) -> Case:
        return replace(self, name=f"{self.name} in {warps} warps", kernel=replace(self.kernel, num_warps=warps))

    def with_source(self, source: str) -> Case:
        return replace(self, kernel=replace(self.kernel, source=source))


def cases_of(name: str, function: Callable[..., Any], *args: Any, settings: Settings = EVERYTHING) -> list[Case]:
    """What a kernel hands on to the next one is computed by the machine; by XLA where not all programs are to run."""
    found: list[Case] = []

    def launch(kernel: Kernel, region: Any, values: Sequence[Any], *rest: Any) -> list[Any]:
        case = Case(f"{name}: {kernel.name}", kernel, tuple(np.asarray(value) for value in values), settings)
        found.append(case)
        if settings.programs is not None and kernel is compiled.kernels[-1]:
            return [jax.numpy.zeros(out.shape, out.dtype) for out in region.out_avals]  # nobody looks at them
        if settings.programs is not None:
            return list(jax.jit(jaxpr_as_fun(region))(*values))
        return [jax.numpy.asarray(output) for output in case.run().outputs]

    compiled = j2t.transpile(function, *args).compiled
    with patch.object(compiled_programs, "launch_kernel", launch):
        compiled.run("interpret", True, *jax.tree.leaves(args))
    return found


def loop_cases(program: LoopProgram, full: bool = False) -> Iterator[Case]:
    """Of the program and of its gradient; with its `full` size only the first two programs of each grid are run."""
    with program.precision():
        source = replace(program, fn=program.bench_fn) if full else program
        rng = np.random.default_rng(0)
        args = (program.bench_args or program.args)(rng) if full else program.args(rng)
        functions = {"forward": source.fn} | ({} if program.grad is None else {"gradient": source.gradient()})
        for way, function in functions.items():
            yield from cases_of(f"{program.name} {way}", function, *args, settings=FULL if full else EVERYTHING)
