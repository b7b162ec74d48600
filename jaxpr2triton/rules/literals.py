"""Constants of kernels.

Triton reads a bare Python number as int32 or float32 (or a wider type when the value does not fit) and lets it take the
dtype of the tensor beside it in `x + 1`, `x < 0.5` or `tl.where(c, x, 0)`. Everywhere else, as in `tl.maximum(x, 0)`,
the number keeps the dtype that it was read with: int8 becomes int32, and float64 loses half of its digits.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np

from jaxpr2triton.ir.dtypes import is_bool, is_float, triton_name, working_dtype
from jaxpr2triton.ir.tree import Hex, as_expr, expr

_NEGATIVE_ZERO = "tl.full((), {}, {}).to({}, bitcast=True)"
PATTERN_FROM = 2**16  # numbers without a sign that are not smaller are masks, magic numbers and bits of floats


def constant(value: Any, dtype: Any) -> ast.expr:
    """A constant, right beside any tensor of its held dtype: `2.0`, `-5`, `True`, `float("nan")`.

    Where a bare number would lose digits or the sign of its zero, the constant says its dtype: 0.1 of float64 is
    `tl.full((), 0.1, tl.float64)`. Patterns of bits are written as such: 0x3F800000.
    """
    if is_bool(dtype):
        return as_expr(bool(value))
    if not is_float(dtype):
        is_pattern = np.issubdtype(dtype, np.unsignedinteger) and int(value) >= PATTERN_FROM
        return as_expr(Hex(value) if is_pattern else int(value))
    with np.errstate(over="ignore"):
        number = float(np.asarray(float(value), dtype))
    if math.isnan(number) or math.isinf(number):
        return expr("float({})", ast.Constant(str(number)))
    holder = working_dtype(dtype)
    if number == 0.0 and math.copysign(1.0, number) < 0:  # Triton writes every zero as +0.0
        bits = 8 * holder.itemsize
        return expr(_NEGATIVE_ZERO, -(1 << bits - 1), f"tl.int{bits}", triton_name(holder))
    if holder == np.float32:
        return as_expr(_shortest(number))
    return as_expr(number) if _is_float32(number) else as_tensor(as_expr(number), holder)


def is_bare(operand: ast.expr) -> bool:
    """True for a constant without a dtype: `2.0`, `-5`, `True`, `float("inf")`; False for names and `tl.full(...)`."""
    match operand:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()) | ast.Call(func=ast.Name("float")):
            return True
    return False


def with_dtype(operand: ast.expr, dtype: Any) -> ast.expr:
    """The operand for a function that does not adapt bare numbers: 3 of int8 → tl.full((), 3, tl.int8)."""
    if not is_bare(operand) or _read_as(_value_of(operand)) == str(working_dtype(dtype)):
        return operand
    return as_tensor(operand, dtype)


def as_tensor(operand: ast.expr, dtype: Any) -> ast.expr:
    """The operand as a tensor, fit for methods and for Triton's own arithmetic: 3 → tl.full((), 3, tl.int32)."""
    return expr("tl.full((), {}, {})", operand, triton_name(working_dtype(dtype))) if is_bare(operand) else operand


def _shortest(number: float) -> float:
    """The same float32 with the fewest digits."""
    short = float(str(np.float32(number)))
    return short if np.float32(short) == np.float32(number) else number


def _is_float32(number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(number)) == number


def integer(operand: ast.expr) -> int:
    """The number that a bare constant is, also if it is written as bits."""
    return int(_value_of(operand))


def _value_of(operand: ast.expr) -> float:
    """The number that a bare constant is."""
    match operand:
        case ast.Constant(bool() | int() | float() as number):
            return number
        case ast.UnaryOp(operand=ast.Constant(int() | float() as number)):
            return -number
    return math.inf


def _read_as(number: float) -> str:
    """The dtype that Triton reads a bare constant with."""
    if isinstance(number, bool):
        return "bool"
    if isinstance(number, float):
        size = abs(number)
        return "float32" if size in (0.0, math.inf) or 2.0**-126 <= size < 2.0**128 else "float64"
    for dtype in (np.int32, np.uint32, np.int64):
        if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            return np.dtype(dtype).name
    return "uint64"
