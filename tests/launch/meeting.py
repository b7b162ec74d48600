"""Kernels written by hand whose programs meet, and what NumPy makes of the same."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace

import numpy as np

from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.rules.helpers import texts_of
from tests.launch.handmade import Spec, make_kernel

BLOCK, STEPS = 16, 4
F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
COUNTER = Buffer("met", (1,), I32, is_met=True)


def make_meeting(
    name: str,
    text: str,
    outputs: list[Spec],
    exchanged: tuple[int, ...],
    grid: tuple[int, int, int],
    helper: str = "",
) -> Kernel:
    """`text` is the body of a kernel that reads `x`, BLOCK numbers for each program, and exchanges `shown`."""
    size = math.prod(grid) * BLOCK
    parameters = ", ".join(f"{buffer}_ptr" for buffer in ("x", *(output for output, *_ in outputs), "shown", "met"))
    body = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    whole = f"{texts_of(['_all_meet'])}{helper}@triton.jit\ndef {name}({parameters}):\n{body}"
    kernel = make_kernel(name, whole, [("x", (size,), "float32")], outputs, grid)
    return replace(kernel, kept=(Buffer("shown", exchanged, F32, is_exchanged=True), COUNTER))


def shift(programs: int, steps: int = STEPS) -> Kernel:
    """In each step every number is added to the one before it, the first one to the last."""
    size = programs * BLOCK
    text = f"""
    p = tl.program_id(0)
    lane = p * {BLOCK} + tl.arange(0, {BLOCK})
    x = tl.load(x_ptr + lane)
    for t in range({steps}):
        half = t % 2 * {size}
        tl.store(shown_ptr + half + lane, x)
        _all_meet(met_ptr, {programs})
        x = 0.5 * (x + tl.load(shown_ptr + half + (lane + 1) % {size}))
    tl.store(out_ptr + lane, x)
    """
    return make_meeting("shift", text, [("out", (size,), "float32")], (2, size), (programs, 1, 1))


def shifted(x: np.ndarray, steps: int = STEPS) -> np.ndarray:
    for _ in range(steps):
        x = np.float32(0.5) * (x + np.roll(x, -1))
    return x


def _partial_sums(programs: int) -> str:
    """The statements by which all programs have the same `total`."""
    return f"""
        half = t % 2 * {programs}
        tl.store(shown_ptr + half + p, tl.sum(x))
        _all_meet(met_ptr, {programs})
        i = tl.arange(0, {1 << (programs - 1).bit_length()})
        total = tl.sum(tl.load(shown_ptr + half + i, mask=i < {programs}, other=0.0))"""


def total(grid: tuple[int, int, int]) -> Kernel:
    """In each step every number is divided by the sum of all, and one is added to it."""
    programs = math.prod(grid)
    text = f"""
    p = tl.program_id(0) + {grid[0]} * (tl.program_id(1) + {grid[1]} * tl.program_id(2))
    lane = p * {BLOCK} + tl.arange(0, {BLOCK})
    x = tl.load(x_ptr + lane)
    for t in range({STEPS}):{_partial_sums(programs)}
        x = x / total + 1.0
    tl.store(out_ptr + lane, x)
    """
    size = programs * BLOCK
    return make_meeting("total", text, [("out", (size,), "float32")], (2, programs), grid)


def totalled(x: np.ndarray) -> np.ndarray:
    for _ in range(STEPS):
        x = x / x.sum() + 1
    return x


def halve(programs: int, bound: float = 1.0) -> Kernel:
    """All numbers are halved until their sum is at most `bound`, and one counts how often."""
    text = f"""
    p = tl.program_id(0)
    lane = p * {BLOCK} + tl.arange(0, {BLOCK})
    x = tl.load(x_ptr + lane)
    t = 0
    total = 1.0 + {bound}
    while total > {bound}:
        x = x * 0.5{_partial_sums(programs)}
        t += 1
    tl.store(out_ptr + lane, x)
    tl.store(steps_ptr, t)
    """
    size = programs * BLOCK
    outputs: list[Spec] = [("out", (size,), "float32"), ("steps", (), "int32")]
    return make_meeting("halve", text, outputs, (2, programs), (programs, 1, 1))


def halved(x: np.ndarray, bound: float = 1.0) -> tuple[np.ndarray, int]:
    steps = 0
    while not steps or x.sum() > bound:
        x, steps = x * np.float32(0.5), steps + 1
    return x, steps


def numbers_for(kernel: Kernel) -> np.ndarray:
    """Positive ones, as many as it reads."""
    (x,) = kernel.inputs
    return np.random.default_rng(0).uniform(0.5, 1.5, x.shape).astype(F32)


def with_line(kernel: Kernel, old: str, new: str) -> Kernel:
    """The kernel with other text in the place of `old`, which it has once; a line that becomes empty is gone."""
    assert kernel.source.count(old) == 1, old
    lines = kernel.source.replace(old, new).splitlines(keepends=True)
    at = kernel.source[: kernel.source.index(old)].count("\n")
    if not lines[at].strip():
        del lines[at]
    return replace(kernel, source="".join(lines))
