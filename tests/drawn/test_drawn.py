"""Programs that hypothesis draws, run as kernels in the interpreter and by plain `jax.jit`: values and gradients.

A failure prints a `PROGRAM` that can be pasted into `test_found.py` or handed to `check`. The `ci` profile draws few
programs, always the same; `HYPOTHESIS_PROFILE=deep` draws thousands, and `scripts/deep` counts them.
"""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given

from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.drawn import families
from tests.drawn.check import check
from tests.drawn.generator import programs
from tests.drawn.known import is_known
from tests.drawn.loop_families import loop_programs
from tests.drawn.program import Program
from tests.drawn.transforms import TRANSFORMS

EXAMPLES = hypothesis.settings().max_examples
DEEP = EXAMPLES > 100
TARGETS_TRIED = ("sm_80", "sm_90", "sm_100", "gfx942")


def compared(program: Program, backend: str = "interpret") -> None:
    """The program's kernels agree with JAX, and not only because there was nothing to compare."""
    hypothesis.assume(not is_known(program))
    hypothesis.note(str(program))
    outcome = check(program, backend=backend)
    hypothesis.event(f"{len(outcome.kernels)} kernels")
    hypothesis.assume(outcome.compared > outcome.skipped)


@given(programs(families.ALL, ("plain",)))
def test_plain(program: Program) -> None:
    compared(program)


@given(programs((*families.INDEXING, families.several_places, families.iota), ("plain",)))
def test_indexing(program: Program) -> None:
    compared(program)


@given(programs((*families.REDUCTIONS, families.row_idiom, families.transpose, families.merge_or_split), ("plain",)))
def test_reductions(program: Program) -> None:
    compared(program)


@given(loop_programs(("plain", "grad")))
def test_spread_loops(program: Program) -> None:
    compared(program.replace(small=False, spread=True, in_order=False))


@given(programs(families.ALL, tuple(TRANSFORMS)))
def test_transformed(program: Program) -> None:
    compared(program)


@hypothesis.settings(max_examples=EXAMPLES if DEEP else max(EXAMPLES // 3, 4))
@given(programs((*families.WINDOWS, families.unary), tuple(TRANSFORMS)))
def test_windows(program: Program) -> None:
    compared(program)


@given(loop_programs(tuple(TRANSFORMS)))
def test_loops(program: Program) -> None:
    compared(program)


@hypothesis.settings(max_examples=max(EXAMPLES // 3, 4))
@given(programs(families.ALL, tuple(TRANSFORMS)) | loop_programs(tuple(TRANSFORMS)))
def test_compiled(program: Program) -> None:
    compared(program, "machine")


@pytest.mark.compile
@hypothesis.settings(max_examples=max(EXAMPLES // 5, 4))
@given(programs(families.ALL, ("plain", "grad")))
def test_kernels_compile(program: Program) -> None:
    """What runs in the interpreter is also accepted by Triton's compiler, for all sorts of devices."""
    hypothesis.assume(not is_known(program))
    hypothesis.note(str(program))
    for place, kernel in enumerate(check(program).kernels):
        targets = TARGETS_TRIED if DEEP else TARGETS_TRIED[place % 4 :: 4]
        for name in targets:
            hypothesis.note(kernel.source)
            binary = compile_kernel(kernel, TARGETS[name])
            assert binary.code and binary.target == name
