"""Conversions between dtypes, and copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import is_bool, is_float, is_unsigned, triton_name, working_dtype
from jaxpr2triton.rules.base import Call, Pointwise, pointwise


def _write_convert(call: Call, args: Sequence[str]) -> str:
    return convert(args[0], call.in_dtypes[0], call.out_dtype)


def convert(x: str, source: np.dtype, target: np.dtype) -> str:
    """The value x, held as a `source`, as a `target`; 16-bit floats are rounded and stay float32."""
    if source == target:
        return x
    if is_bool(target):
        return f"{x} != 0"
    if is_float(source) and not is_float(target):
        return _to_integer(x, target)
    if working_dtype(target) != target and not _fits(source, target):
        if source == np.float64 and target != np.float16:
            x = f"{x}.to(tl.float32)"  # XLA rounds twice
        return f"{x}.to({triton_name(target)}).to({triton_name(working_dtype(target))})"
    return x if working_dtype(source) == working_dtype(target) else f"{x}.to({triton_name(working_dtype(target))})"


def _fits(source: np.dtype, target: np.dtype) -> bool:
    """True if every value of `source` is one of the 16-bit float `target`."""
    return is_bool(source) or (source.itemsize == 1 and not is_float(source))


def _to_integer(x: str, target: np.dtype) -> str:
    """Towards zero; what is too large becomes the largest integer, what is too small the smallest, and NaN is 0."""
    lowest, highest = np.iinfo(target).min, np.iinfo(target).max
    inside = f"tl.where({x} == {x}, {x}, 0).to({triton_name(target)})"
    above = f"tl.where({x} >= {float(highest + 1)!r}, {highest}, {inside})"
    return f"tl.where({x} <= {'0' if is_unsigned(target) else repr(float(lowest))}, {lowest}, {above})"


def _bitcast(call: Call, args: Sequence[str]) -> str:
    x, source, target = args[0], call.in_dtypes[0], call.out_dtype
    if source == target:
        return x
    if working_dtype(source) != source:
        x = f"{x}.to({triton_name(source)})"
    x = f"{x}.to({triton_name(target)}, bitcast=True)"
    return x if working_dtype(target) == target else f"{x}.to({triton_name(working_dtype(target))})"


def _refuse_bitcast(call: Call) -> WhyNot | None:
    source, target = call.in_dtypes[0], call.out_dtype
    if source.itemsize != target.itemsize:
        return WhyNot(f"a bitcast from {source} to {target} changes the number of elements")
    if is_bool(source) != is_bool(target):
        return WhyNot(f"a bitcast from {source} to {target} has no meaning for one bit")
    return None


TABLE = {
    "convert_element_type": Pointwise(_write_convert, linear_in=(0,)),
    "bitcast_convert_type": Pointwise(_bitcast, flops=0, refuse=_refuse_bitcast),
    "copy": pointwise("{0}", flops=0, linear_in=(0,)),
    "stop_gradient": pointwise("{0}", flops=0, linear_in=(0,)),
    "rounded": pointwise("{0}", flops=0),  # its operand is rounded
    "member": pointwise("{0}", flops=0, linear_in=(0,)),
}
