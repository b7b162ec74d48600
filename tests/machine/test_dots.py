"""Triton's own products of matrices, compiled for sm_80: copies that are under way while others are multiplied."""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import dataclass

import numpy as np
import pytest

from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import Binary, compile_kernel
from jaxpr2triton.launch.machine.kernels import examine
from jaxpr2triton.launch.machine.layout import Kind
from tests.launch.handmade import make_kernel, random_array


@dataclass(frozen=True)
class Dot:
    dtype: str
    total: str
    digits: float
    words: tuple[str, ...]  # of the PTX
    precision: str = "ieee"
    tile: int = 32
    warps: int = 4


DOTS = [
    Dot("float16", "float32", 1e-6, ("m16n8k16.row.col.f32.f16.f16.f32", "ldmatrix", ".trans")),
    Dot("float16", "float16", 2e-3, ("m16n8k16.row.col.f16.f16.f16.f16",), warps=2),
    Dot("bfloat16", "float32", 1e-6, ("m16n8k16.row.col.f32.bf16.bf16.f32",)),
    Dot("float32", "float32", 2e-3, ("m16n8k8.row.col.f32.tf32.tf32.f32",), "tf32"),
    Dot("float32", "float32", 1e-6, ("m16n8k8.row.col.f32.tf32.tf32.f32",), "tf32x3"),
    Dot("float32", "float32", 1e-6, ("fma.rn.f32",)),
    Dot("float64", "float64", 1e-14, ("m8n8k4.row.col.f64.f64.f64.f64",), tile=16),
    Dot("int8", "int32", 0, ("m16n8k32.row.col.satfinite.s32.s8.s8.s32", "ldmatrix")),
]


def _kernel(dot: Dot) -> Kernel:
    t, size, steps = dot.tile, 2 * dot.tile, 4 * dot.tile
    text = f"""
    rows = tl.program_id(0) * {t} + tl.arange(0, {t})
    columns = tl.program_id(1) * {t} + tl.arange(0, {t})
    inner = tl.arange(0, {t})
    total = tl.zeros(({t}, {t}), tl.{dot.total})
    for start in tl.range(0, {steps}, {t}, num_stages=3):
        a = tl.load(a_ptr + rows[:, None] * {steps} + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * {size} + columns[None, :])
        total = tl.dot(a, b, total, input_precision="{dot.precision}", out_dtype=tl.{dot.total})
    tl.store(c_ptr + rows[:, None] * {size} + columns[None, :], total)
    """
    inputs = [("a", (size, steps), dot.dtype), ("b", (steps, size), dot.dtype)]
    return make_kernel("product", text, inputs, [("c", (size, size), dot.total)], (2, 2, 1), dot.warps)


@functools.cache
def _compiled(dot: Dot) -> tuple[Kernel, Binary, tuple[np.ndarray, ...]]:
    kernel = _kernel(dot)
    rng = np.random.default_rng(0)
    inputs = tuple(random_array(rng, buffer.shape, dot.dtype) for buffer in kernel.inputs)
    return kernel, compile_kernel(kernel, target_named("sm_80"), lines=True), inputs


def _name(dot: Dot) -> str:
    return f"{dot.dtype} {dot.total} {dot.precision}"


@pytest.mark.parametrize("dot", DOTS, ids=_name)
def test_products_of_triton(dot: Dot) -> None:
    kernel, binary, inputs = _compiled(dot)
    assert isinstance(binary.code, str)
    for word in ("cp.async.commit_group", "cp.async.wait_group", *dot.words):
        assert word in binary.code
    examined = examine(kernel, binary, inputs)
    assert [str(finding) for finding in examined.findings] == []
    assert examined.forgotten == ()
    wide = np.int64 if dot.total == "int32" else np.float64
    expected = inputs[0].astype(wide) @ inputs[1].astype(wide)
    wrong = np.abs(examined.outputs[0].astype(wide) - expected).max()
    assert wrong <= dot.digits * np.abs(expected).max()


WAITS = r"\n[^\n]*cp\.async\.wait_group[^\n]*"
BARRIERS = r"\n[^\n]*bar\.sync[^\n]*"


@pytest.mark.parametrize("dot", DOTS, ids=_name)
def test_waits_and_barriers_that_are_missing(dot: Dot) -> None:
    """All of them, and one at a time. Some are superfluous, for Triton waits twice: without those, nothing changes."""
    kernel, binary, inputs = _compiled(dot)
    assert isinstance(binary.code, str)
    for words, expected in ((WAITS, Kind.UNDEFINED_STORED), (BARRIERS, Kind.RACE_OF_WARPS)):
        without = dataclasses.replace(binary, code=re.sub(words, "", binary.code))
        assert expected in {finding.kind for finding in examine(kernel, without, inputs).findings}
    right = examine(kernel, binary, inputs).outputs[0]
    noticed = 0
    for match in re.finditer(f"{WAITS}|{BARRIERS}", binary.code):
        without = dataclasses.replace(binary, code=binary.code[: match.start()] + binary.code[match.end() :])
        examined = examine(kernel, without, inputs)
        noticed += bool(examined.findings)
        assert examined.findings or np.array_equal(examined.outputs[0], right)
    assert noticed >= 3
