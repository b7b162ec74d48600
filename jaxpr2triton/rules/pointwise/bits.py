"""Shifts, and the hash behind random bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxpr2triton.ir.dtypes import is_signed, triton_name
from jaxpr2triton.rules.base import Call, Pointwise
from jaxpr2triton.rules.literals import as_tensor, integer, is_bare


def _bits(dtype: np.dtype) -> int:
    return dtype.itemsize * 8


def _in_range(shift: str, dtype: np.dtype) -> str:
    if is_signed(dtype):
        return f"({shift} >= 0) & ({shift} < {_bits(dtype)})"
    return f"{shift} < {_bits(dtype)}"


def _shift(write: Callable[[str, str, np.dtype], str]) -> Pointwise:
    """A shift by a negative number or by the width of the dtype pushes every bit out and leaves zeros."""

    def guarded(call: Call, args: Sequence[str]) -> str:
        x, shift = args
        dtype = call.in_dtypes[0]
        shifted = write(as_tensor(x, dtype), shift, dtype)
        if not is_bare(shift):
            return f"tl.where({_in_range(shift, dtype)}, {shifted}, 0)"
        return shifted if 0 <= integer(shift) < _bits(dtype) else f"{x} ^ {x}"

    return Pointwise(guarded, flops=2)


def _left(x: str, shift: str, dtype: np.dtype) -> str:
    return f"{x} << {shift}"


def _right_logical(x: str, shift: str, dtype: np.dtype) -> str:
    if not is_signed(dtype):
        return f"{x} >> {shift}"
    unsigned = f"tl.uint{_bits(dtype)}"
    shift = shift if is_bare(shift) else f"{shift}.to({unsigned})"
    return f"({x}.to({unsigned}) >> {shift}).to({triton_name(dtype)})"


def _right_arithmetic(call: Call, args: Sequence[str]) -> str:
    """Keeps the sign bit, also of unsigned numbers; a shift by too much leaves copies of the sign bit."""
    x, shift = args
    dtype = call.in_dtypes[0]
    x, last = as_tensor(x, dtype), _bits(dtype) - 1
    if is_bare(shift):
        shift = str(min(integer(shift), last) if integer(shift) >= 0 else last)
    else:
        shift = f"tl.where({_in_range(shift, dtype)}, {shift}, {last})"
    if is_signed(dtype):
        return f"{x} >> {shift}"
    signed = f"tl.int{_bits(dtype)}"
    shift = shift if is_bare(shift) else f"{shift}.to({signed})"
    return f"({x}.to({signed}) >> {shift}).to({triton_name(dtype)})"


def _hash(call: Call, args: Sequence[str]) -> str:
    *key, high, low = args
    words = [as_tensor(word, call.in_dtypes[0]) for word in key]
    return f"_threefry({', '.join((*words, high, low))})"


def _philox(call: Call, args: Sequence[str]) -> str:
    return f"_philox({', '.join(as_tensor(word, call.in_dtypes[0]) for word in args)})"


TABLE = {
    "shift_left": _shift(_left),
    "shift_right_logical": _shift(_right_logical),
    "shift_right_arithmetic": Pointwise(_right_arithmetic, flops=2),
    "threefry": Pointwise(_hash, flops=80, helpers=("_threefry",), words=2),
    "philox": Pointwise(_philox, flops=100, helpers=("_philox",), words=4),
}
