"""Kernels of full size with several warps: the first two programs of the grid, on random numbers. No race, no finding.

In the `ci` profile those of a few programs; `HYPOTHESIS_PROFILE=deep`: of all of them, with their gradients.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.contractions import at_full_size
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, examine
from jaxpr2triton.launch.machine.layout import Kind
from jaxpr2triton.launch.machine.run import Settings
from tests.contraction_programs import PROGRAMS as CONTRACTIONS
from tests.loop_programs import PROGRAMS, LoopProgram

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
FEW = ("rnn", "rnn_projected", "lstm", "lstm_bf16", "sinkhorn", "value_iteration", "gae", "ctc_loss")
FEW_PRODUCTS = ("rotated", "attention_bf16", "layers_gradients")
FIRST = Settings(programs=range(2))
BUDGET = 2_000_000  # instructions of warps; what goes on for longer is cut off there


def numbers(buffer: Buffer, rng: np.random.Generator) -> np.ndarray:
    if buffer.dtype.kind in "biu":
        return np.zeros(buffer.shape, buffer.dtype)
    return np.asarray(rng.uniform(0.1, 1.0, buffer.shape)).astype(buffer.dtype)


def kernels(program: LoopProgram) -> list[Kernel]:
    with program.precision():
        made = (program.bench_args or program.args)(np.random.default_rng())
        arguments = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), made)
        functions: list[Any] = [program.bench_fn]
        if DEEP and program.grad is not None and program.full is None:
            functions.append(program.gradient())
        return [kernel for function in functions for kernel in j2t.transpile(function, *arguments).kernels]


@pytest.mark.parametrize("name", [p.name for p in PROGRAMS if (DEEP and "random" not in p.tags) or p.name in FEW])
def test_no_finding(name: str) -> None:
    (program,) = (program for program in PROGRAMS if program.name == name)
    found = kernels(program)
    assert DEEP or any(kernel.num_warps > 1 for kernel in found)
    rng = np.random.default_rng()
    for kernel in found:
        inputs = [numbers(buffer, rng) for buffer in kernel.inputs]
        with jax.enable_x64("x64" in program.tags):
            binary = compiled_for_machine(kernel, TARGETS["sm_90"])
        examined = examine(kernel, binary, inputs, Settings(programs=range(2), budget=BUDGET))
        assert [str(each) for each in examined.findings if each.kind != Kind.NO_END] == [], kernel.source


@pytest.mark.parametrize("name", [p.name for p in CONTRACTIONS if p.name in FEW_PRODUCTS or DEEP])
def test_products_of_warpgroups(name: str) -> None:
    """The same numbers, of the same kernel, as with the products of an A100."""
    program = at_full_size(next(program for program in CONTRACTIONS if program.name == name))
    made = j2t.transpile(program.whole(), *program.sizes(), contractions="triton", for_target="sm_90")
    rng = np.random.default_rng(1)
    multiplied = 0
    for kernel in made.kernels:
        newer = compiled_for_machine(kernel, TARGETS["sm_90"])
        if "wgmma.mma_async" not in str(newer.code):
            continue
        multiplied += 1
        inputs = [numbers(buffer, rng) for buffer in kernel.inputs]
        older = compiled_for_machine(kernel, TARGETS["sm_80"])
        found, expected = (examine(kernel, each, inputs, FIRST) for each in (newer, older))
        assert [str(each) for each in found.findings] == [], kernel.source
        for one, other in zip(found.outputs, expected.outputs, strict=True):
            one, other = one.astype(np.float64), other.astype(np.float64)
            np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(np.nan_to_num(other)).max())
    assert multiplied or DEEP
