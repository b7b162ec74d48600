"""Printed plans and whole kernels, compared as text.

    GOLDENS=write python -m pytest tests/golden        # writes them anew; look at the difference before it is committed

Plans are short and may grow; kernels are whole, so there is only a handful. A file that no case compares fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.golden import functions as f

FOLDER = Path(__file__).parent
LINES_AT_MOST = 85
Shape = tuple[int, ...]
Case = tuple[Callable[..., Any], tuple[Shape, ...]]


def avals(shapes: tuple[Shape, ...], dtype: Any = np.float32) -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def plan_text(fn: Callable[..., Any], shapes: tuple[Shape, ...]) -> str:
    return str(j2t.transpile(fn, *avals(shapes)).stages["schedule"])


def backward_text(fn: Callable[..., Any], shapes: tuple[Shape, ...]) -> str:
    pair = j2t.transpile(fn, *avals(shapes), grad=tuple(range(len(shapes))))
    return str(pair.backward.stages["schedule"])


def plans(text: Callable[[Any, Any], str], *cases: Case) -> str:
    return "\n".join(f"{' '.join(map(_short, shapes))}\n{text(fn, shapes)}\n" for fn, shapes in cases)


def _short(shape: Shape) -> str:
    return f"f32[{','.join(map(str, shape))}]"


def kernels(program: Any) -> str:
    return "\n\n".join(kernel.source for kernel in program.kernels)


NORM = ((8192, 4096), (4096,), (4096,))
LITTLE_NORM = ((8192, 256), (256,), (256,))
ROTARY = ((8, 16, 2048, 128), (2048, 128), (2048, 128))
LSTM = dict(zip("wub", avals(((16, 128), (32, 128), (128,)))))
PAIRS = ((8, 16, 2048, 128), (2048, 64), (2048, 64))

GOLDENS: dict[str, Callable[[], str]] = {
    "plans_of_rows": lambda: plans(
        plan_text, *((f.softmax, ((4096, row),)) for row in (1, 3, 17, 128, 1000, 4096, 16384, 16385, 1_000_000))
    ),
    "plans_of_columns": lambda: plans(
        plan_text,
        (f.column_softmax, ((1000, 4096),)),
        (f.column_softmax, ((64, 100_000),)),
        (f.column_sum, ((100_000, 64),)),
        (f.column_sum, ((256, 100_000),)),
        (f.column_sum, ((10_000_000,),)),
        (f.length, ((1_000_000, 3),)),
        (f.length, ((1_000_000, 30),)),
        (f.best, ((4096, 1000),)),
    ),
    "plans_of_pointwise": lambda: plans(
        plan_text,
        (f.double, ((),)),
        (f.double, ((5,),)),
        (f.double, ((8192, 4096),)),
        (f.outer, ((1000,), (1000,))),
        (f.turned, ((4096, 1000),)),
        (f.turned_inside, ((64, 512, 300),)),
        (f.padded, ((1000, 500),)),
        (f.blurred, ((1000, 502),)),
        (f.adam, ((4_000_000,),) * 4),
    ),
    "plans_unrolled": lambda: plans(plan_text, (f.rotary, ROTARY), (f.interleaved, PAIRS)),
    "plans_of_gradients": lambda: plans(
        backward_text,
        (f.layer_norm, NORM),
        (f.layer_norm, ((100, 50), (50,), (50,))),
        (f.softmax, ((4096, 1000),)),
        (f.outer, ((1000,), (1000,))),
        (f.column_sum, ((100_000, 64),)),
        (f.rotary, ROTARY),
    ),
    "kernel_layer_norm": lambda: kernels(j2t.transpile(f.layer_norm, *avals(NORM))),
    "kernel_layer_norm_backward": lambda: kernels(
        j2t.transpile(f.layer_norm, *avals(LITTLE_NORM), grad=(0, 1, 2)).backward
    ),
    "kernel_softmax_streamed": lambda: kernels(j2t.transpile(f.softmax, *avals(((128, 1_000_000),)))),
    "kernel_rotary": lambda: kernels(j2t.transpile(f.rotary, *avals(ROTARY))),
    "kernel_lstm": lambda: kernels(
        j2t.transpile(f.lstm, LSTM, *avals(((64, 32), (64, 32), (512, 64, 16))), strict=True)
    ),
    "kernel_smoothed_gradient": lambda: kernels(
        j2t.transpile(jax.grad(f.smoothed, (0, 1)), *avals(((4096,), (4096,), (30, 4096))))
    ),
    "kernel_column_sum": lambda: kernels(j2t.transpile(f.column_sum, *avals(((100_000, 64),)))),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    path = FOLDER / f"{name}.txt"
    text = GOLDENS[name]()
    if os.environ.get("GOLDENS") == "write":
        path.write_text(text)
    assert text == path.read_text(), "GOLDENS=write python -m pytest tests/golden writes them anew"


def test_every_golden_is_compared_and_short() -> None:
    files = {path.stem: path for path in FOLDER.glob("*.txt")}
    assert set(files) == set(GOLDENS)
    lengths = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    assert {name: length for name, length in lengths.items() if length > LINES_AT_MOST} == {}
