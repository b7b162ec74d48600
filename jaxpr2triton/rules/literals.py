"""Constants as Triton text.

Triton reads a bare Python number as int32 or float32 (or a wider type when the value does not fit) and lets it take the
dtype of the tensor beside it in `x + 1`, `x < 0.5` or `tl.where(c, x, 0)`. Everywhere else, as in `tl.maximum(x, 0)`,
the number keeps the dtype that it was read with: int8 becomes int32, and float64 loses half of its digits.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from jaxpr2triton.ir.dtypes import is_bool, is_float, triton_name, working_dtype

_NEGATIVE_ZERO = {4: "tl.full((), -2147483648, tl.int32)", 8: "tl.full((), -9223372036854775808, tl.int64)"}
PATTERN_FROM = 2**16  # numbers without a sign that are not smaller are masks, magic numbers and bits of floats
_BARE = re.compile(r"""-?\d[\w.]*(e[+-]?\d+)?|True|False|float\("(nan|inf|-inf)"\)""")


def constant(value: Any, dtype: Any) -> str:
    """The text of a constant, right beside any tensor of its held dtype: `2.0`, `-5`, `True`, `float("nan")`.

    Where a bare number would lose digits or the sign of its zero, the constant says its dtype: 0.1 of float64 is
    `tl.full((), 0.1, tl.float64)`. Patterns of bits are written as such: 0x3F800000.
    """
    if is_bool(dtype):
        return str(bool(value))
    if not is_float(dtype):
        is_pattern = np.issubdtype(dtype, np.unsignedinteger) and int(value) >= PATTERN_FROM
        return f"0x{int(value):08X}" if is_pattern else str(int(value))
    with np.errstate(over="ignore"):
        number = float(np.asarray(float(value), dtype))
    if math.isnan(number) or math.isinf(number):
        return f'float("{number}")'
    holder = working_dtype(dtype)
    if number == 0.0 and math.copysign(1.0, number) < 0:  # Triton writes every zero as +0.0
        return f"{_NEGATIVE_ZERO[holder.itemsize]}.to({triton_name(holder)}, bitcast=True)"
    if holder == np.float32:
        return _shortest(number)
    return repr(number) if _is_float32(number) else f"tl.full((), {number!r}, {triton_name(holder)})"


def is_bare(text: str) -> bool:
    """True for a constant without a dtype: `2.0`, `-5`, `True`, `float("inf")`; False for names and `tl.full(...)`."""
    return _BARE.fullmatch(text) is not None


def with_dtype(text: str, dtype: Any) -> str:
    """The operand for a function that does not adapt bare numbers: 3 of int8 → tl.full((), 3, tl.int8)."""
    if not is_bare(text) or _read_as(text) == str(working_dtype(dtype)):
        return text
    return as_tensor(text, dtype)


def as_tensor(text: str, dtype: Any) -> str:
    """The operand as a tensor, fit for methods and for Triton's own arithmetic: 3 → tl.full((), 3, tl.int32)."""
    return f"tl.full((), {text}, {triton_name(working_dtype(dtype))})" if is_bare(text) else text


def _shortest(number: float) -> str:
    """The fewest digits that read back as the same float32."""
    text = str(np.float32(number))
    return repr(float(text)) if np.float32(float(text)) == np.float32(number) else repr(number)


def _is_float32(number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(number)) == number


def integer(text: str) -> int:
    """The number that a bare constant is, also if it is written as bits."""
    return int(text, 0)


def _read_as(text: str) -> str:
    """The dtype that Triton reads a bare constant with."""
    if text in ("True", "False"):
        return "bool"
    if not re.fullmatch(r"-?\d+|0x[0-9A-F]+", text):
        number = 0.0 if text.startswith("float(") else abs(float(text))
        return "float32" if number == 0.0 or 2.0**-126 <= number < 2.0**128 else "float64"
    number = integer(text)
    for dtype in (np.int32, np.uint32, np.int64):
        if np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
            return np.dtype(dtype).name
    return "uint64"
