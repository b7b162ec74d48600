"""Kernels written by hand, for the tests of what runs them."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jaxpr2triton.ir.kernel import Buffer, Kernel
from jaxpr2triton.launch.compile import cache, compile
from jaxpr2triton.rules.helpers import texts_of

Spec = tuple[str, tuple[int, ...], str]  # name, shape, dtype

_HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice


"""


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def make_kernel(
    name: str,
    text: str,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    grid: tuple[int, int, int] = (1, 1, 1),
    num_warps: int = 4,
) -> Kernel:
    """`text` is the body of the kernel, or everything after the imports if it has a `def` of its own."""
    buffers = [[Buffer(b, shape, dtype_of(dtype)) for b, shape, dtype in specs] for specs in (inputs, outputs)]
    text = textwrap.dedent(text).strip("\n")
    if "def " not in text:
        parameters = ", ".join(f"{buffer.name}_ptr" for buffer in (*buffers[0], *buffers[1]))
        text = f"@triton.jit\ndef {name}({parameters}):\n" + textwrap.indent(text, "    ")
    source = f"{_HEAD}{text}\n"
    return Kernel(name, source, tuple(buffers[0]), tuple(buffers[1]), (), grid, num_warps, 3, 0, 0, 0)


def elementwise(expression: str, dtypes: Sequence[str], result: str, size: int = 100) -> Kernel:
    """out = expression of a, b, c."""
    names = "abc"[: len(dtypes)]
    loads = [f"{name} = tl.load({name}_ptr + i, mask=i < {size}, other=0)" for name in names]
    text = [
        "i = tl.program_id(0) * 32 + tl.arange(0, 32)",
        *loads,
        f"tl.store(out_ptr + i, {expression}, mask=i < {size})",
    ]
    inputs = [(name, (size,), dtype) for name, dtype in zip(names, dtypes)]
    return make_kernel("pointwise", "\n".join(text), inputs, [("out", (size,), result)], (-(-size // 32), 1, 1))


SOFTMAX = make_kernel(
    "softmax",
    """
    row = tl.program_id(0)
    col = tl.arange(0, 512)
    x = tl.load(x_ptr + row * 300 + col, mask=col < 300, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * 300 + col, e / tl.sum(e, axis=0), mask=col < 300)
    """,
    [("x", (5, 300), "float32")],
    [("out", (5, 300), "float32")],
    (5, 1, 1),
)


def shift_kernel(programs: int = 8, steps: int = 4, num_warps: int = 4, lanes: int = 128) -> Kernel:
    """In each step every element gets its right neighbour added, whichever program has that: all of them meet."""
    size = programs * lanes
    text = f"""
    @triton.jit
    def shift(x_ptr, out_ptr, shown_ptr, met_ptr):
        p = tl.program_id(0)
        lane = tl.arange(0, {lanes})
        x = tl.load(x_ptr + p * {lanes} + lane)
        for t in range({steps}):
            tl.store(shown_ptr + t % 2 * {size} + p * {lanes} + lane, x)
            _all_meet(met_ptr, {programs})
            x = x + tl.load(shown_ptr + t % 2 * {size} + (p * {lanes} + lane + 1) % {size})
        tl.store(out_ptr + p * {lanes} + lane, x)
    """
    kernel = make_kernel(
        "shift",
        texts_of(["_all_meet"]) + textwrap.dedent(text).strip("\n"),
        [("x", (size,), "float32")],
        [("out", (size,), "float32")],
        (programs, 1, 1),
        num_warps,
    )
    shown = Buffer("shown", (2, size), dtype_of("float32"), is_exchanged=True)
    met = Buffer("met", (1,), dtype_of("int32"), is_met=True)
    return dataclasses.replace(kernel, kept=(shown, met))


def add_kernel(size: int = 64, name: str = "add") -> Kernel:
    text = f"""
    i = tl.arange(0, {size})
    tl.store(out_ptr + i, tl.load(a_ptr + i) + tl.load(b_ptr + i))
    """
    return make_kernel(
        name, text, [("a", (size,), "float32"), ("b", (size,), "float32")], [("out", (size,), "float32")]
    )


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype_of(dtype))


def forget() -> None:
    """As in a fresh process: no compiled kernel in memory, no warning given."""
    compile._binaries.clear()
    compile._stages.cache_clear()
    cache._warned.clear()
