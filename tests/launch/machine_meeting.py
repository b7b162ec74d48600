"""Kernels written by hand whose programs meet in each step, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.rules.helpers import texts_of

BLOCK = 64  # elements of each program
_HEAD = "import triton\nimport triton.language as tl\n\n\n"
_F32, _I32 = np.dtype(np.float32), np.dtype(np.int32)


@dataclass(frozen=True)
class Meeting:
    kernel: Kernel
    inputs: tuple[np.ndarray, ...]
    expected: Callable[[], np.ndarray]


def shifted(programs: int, steps: int, warps: int = 2) -> Meeting:
    """x[i] + x[i + half a block], again and again: each program reads what the next one has."""
    size = programs * BLOCK
    text = f"""@triton.jit
def shifted(x_ptr, out_ptr, shown_ptr, met_ptr):
    here = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})
    x = tl.load(x_ptr + here)
    for t in range({steps}):
        half = t % 2 * {size}
        tl.store(shown_ptr + half + here, x)
        _all_meet(met_ptr, {programs})
        x = 0.5 * (x + tl.load(shown_ptr + half + (here + {BLOCK // 2}) % {size}))
    tl.store(out_ptr + here, x)
"""
    x = np.random.default_rng(programs).standard_normal(size).astype(_F32)

    def expected() -> np.ndarray:
        result = x
        for _ in range(steps):
            result = np.float32(0.5) * (result + np.roll(result, -BLOCK // 2))
        return result

    return Meeting(_kernel("shifted", text, (Buffer("x", x.shape, _F32),), size, programs, warps), (x,), expected)


def multiplied(programs: int, steps: int, warps: int = 2, rows: int = 4) -> Meeting:
    """A matrix times a vector, again and again: each program has some rows, and reads what all have; whole numbers."""
    size = programs * rows
    lanes = 1 << (size - 1).bit_length()
    text = f"""@triton.jit
def multiplied(matrix_ptr, x_ptr, out_ptr, shown_ptr, met_ptr):
    row = tl.program_id(0) * {rows} + tl.arange(0, {rows})
    col = tl.arange(0, {lanes})
    matrix = tl.load(matrix_ptr + row[:, None] * {size} + col[None, :], mask=col[None, :] < {size}, other=0)
    x = tl.load(x_ptr + row)
    for t in range({steps}):
        half = t % 2 * {size}
        tl.store(shown_ptr + half + row, x)
        _all_meet(met_ptr, {programs})
        every = tl.load(shown_ptr + half + col, mask=col < {size}, other=0)
        x = tl.sum(matrix * every[None, :], axis=1) % 101
    tl.store(out_ptr + row, x)
"""
    rng = np.random.default_rng(programs)
    matrix, x = (rng.integers(0, 9, shape).astype(_I32) for shape in ((size, size), size))

    def expected() -> np.ndarray:
        result = x
        for _ in range(steps):
            result = matrix @ result % 101
        return result

    inputs = (Buffer("matrix", matrix.shape, _I32), Buffer("x", x.shape, _I32))
    return Meeting(_kernel("multiplied", text, inputs, size, programs, warps), (matrix, x), expected)


def _kernel(name: str, text: str, inputs: tuple[Buffer, ...], size: int, programs: int, warps: int) -> Kernel:
    dtype = inputs[0].dtype
    kept = (Buffer("shown", (2, size), dtype, is_exchanged=True), Buffer("met", (1,), _I32, is_met=True))
    source, outputs = _HEAD + texts_of(["_all_meet"]) + text, (Buffer("out", (size,), dtype),)
    return Kernel(name, source, inputs, outputs, (), (programs, 1, 1), warps, 1, 0, 0, 0, kept=kept)
