"""Shifts, and the hash behind random bits."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import numpy as np

from jaxpr2triton.ir.dtypes import is_signed, triton_name
from jaxpr2triton.ir.tree import as_expr, call, expr
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.literals import as_tensor, integer, is_bare


def _bits(dtype: np.dtype) -> int:
    return dtype.itemsize * 8


def _in_range(shift: ast.expr, dtype: np.dtype) -> ast.expr:
    return expr("({0} >= 0) & ({0} < {1})" if is_signed(dtype) else "{} < {}", shift, _bits(dtype))


def _shift(write: Callable[[ast.expr, ast.expr, np.dtype], ast.expr]) -> Pointwise:
    """A shift by a negative number or by the width of the dtype pushes every bit out and leaves zeros."""

    def guarded(call: Call, args: Sequence[ast.expr]) -> ast.expr:
        x, shift = args
        dtype = call.in_dtypes[0]
        shifted = write(as_tensor(x, dtype), shift, dtype)
        if not is_bare(shift):
            return expr("tl.where({}, {}, 0)", _in_range(shift, dtype), shifted)
        return shifted if 0 <= integer(shift) < _bits(dtype) else expr("{0} ^ {0}", x)

    return Pointwise(guarded, flops=2)


def _left(x: ast.expr, shift: ast.expr, dtype: np.dtype) -> ast.expr:
    return expr("{} << {}", x, shift)


def _right_logical(x: ast.expr, shift: ast.expr, dtype: np.dtype) -> ast.expr:
    if not is_signed(dtype):
        return expr("{} >> {}", x, shift)
    return _shifted_as(f"tl.uint{_bits(dtype)}", x, shift, dtype)


def _shifted_as(kind: str, x: ast.expr, shift: ast.expr, dtype: np.dtype) -> ast.expr:
    """A shift to the right of what is taken for a number of another kind."""
    shift = shift if is_bare(shift) else expr("{}.to({})", shift, kind)
    return expr("({}.to({}) >> {}).to({})", x, kind, shift, triton_name(dtype))


def _right_arithmetic(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    """Keeps the sign bit, also of unsigned numbers; a shift by too much leaves copies of the sign bit."""
    x, shift = args
    dtype = call.in_dtypes[0]
    x, last = as_tensor(x, dtype), _bits(dtype) - 1
    if is_bare(shift):
        shift = as_expr(min(integer(shift), last) if integer(shift) >= 0 else last)
    else:
        shift = expr("tl.where({}, {}, {})", _in_range(shift, dtype), shift, last)
    if is_signed(dtype):
        return expr("{} >> {}", x, shift)
    return _shifted_as(f"tl.int{_bits(dtype)}", x, shift, dtype)


def _hash(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    *key, high, low = args
    words = [as_tensor(word, of.in_dtypes[0]) for word in key]
    return call("_threefry", *words, high, low)


def _philox(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    return call("_philox", *(as_tensor(word, of.in_dtypes[0]) for word in args))


TABLE = {
    "shift_left": _shift(_left),
    "shift_right_logical": _shift(_right_logical),
    "shift_right_arithmetic": Pointwise(_right_arithmetic, flops=2),
    "threefry": Pointwise(_hash, flops=80, helpers=("_threefry",), words=2),
    "philox": Pointwise(_philox, flops=100, helpers=("_philox",), words=4),
}
