"""Every kernel of the named programs and of their gradients, compiled and run on the machine: values, and no finding.

On sm_90 all of them; on sm_80 every other one in turn (`HYPOTHESIS_PROFILE=deep`: all of them).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.launch.machine.kernels import EXAMINED
from tests.compiling import RUNNABLE, differences, halves_of
from tests.loop_programs import PROGRAMS, LoopProgram
from tests.test_loop_programs import by_jax, gradient_and_value, widened

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
LOOPS = {program.name: program for program in PROGRAMS}
NAMES = (*RUNNABLE, *LOOPS)
CASES = [(name, "sm_90") for name in NAMES] + [(name, "sm_80") for name in (NAMES if DEEP else NAMES[::3])]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_compiled_kernels_compute_the_same(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", target)
    with EXAMINED.watched() as examined:
        for what, found, expected, digits in loop_results(LOOPS[name]) if name in LOOPS else results(name):
            assert differences(found, expected, digits) == [], what
    assert examined
    assert {each.target for each in examined} == {target}
    wrong = [f"{each.kernel.name}: {finding}" for each in examined for finding in (*each.findings, *each.forgotten)]
    assert wrong == []


Result = tuple[str, list[Any], list[Any], float]


def results(name: str) -> Iterator[Result]:
    for half in halves_of(name):
        with half.enable_x64():
            expected = jax.jit(functools.partial(run, half.compiled.stages["trace"]))(*half.inputs)
            found = jax.jit(functools.partial(half.compiled.run, "machine", True))(*half.inputs)
        yield half.compiled.name, found, expected, half.digits


def loop_results(program: LoopProgram) -> Iterator[Result]:
    """In 64 bits where errors grow from step to step."""
    chaotic = "chaotic" in program.tags
    digits = 4e-2 if "low" in program.tags else 1e-8 if "x64" in program.tags else 2e-4
    functions: list[Callable[..., Any]] = [program.fn]
    if program.grad is not None:
        functions.append(gradient_and_value(program))
    with jax.enable_x64(chaotic or "x64" in program.tags):
        args = program.args(np.random.default_rng())
        args = jax.tree.map(widened, args) if chaotic else args
        for function in functions:
            fused = j2t.fuse(function, backend="machine")
            yield program.name, jax.tree.leaves(fused(*args)), by_jax(function, *args), digits
