"""Rows whose expression is a call: constants among the operands are given their dtype."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.literals import with_dtype


def function(template: str, *, flops: int = 1, instructions: int | None = None, **by_kind: str) -> Pointwise:
    """Like `pointwise`, for templates such as "libdevice.atan2({0}, {1})", where a bare number keeps its own dtype."""
    row = pointwise(template, flops=flops, linear_in=(), instructions=instructions, **by_kind)

    def write(call: Call, args: Sequence[ast.expr]) -> ast.expr:
        return row.write(call, [with_dtype(arg, dtype) for arg, dtype in zip(args, call.in_dtypes)])

    return replace(row, write=write)


def by_digits(helper: str, dtype: np.dtype, wide: str) -> str:
    """The function for 32 bits, the one for 16, which is short, or for more digits than either has, `wide`."""
    return {2: f"{helper}16", 4: helper}.get(dtype.itemsize, wide)
