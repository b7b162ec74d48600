"""Conversions between dtypes, and copies."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import is_bool, is_float, is_unsigned, triton_name, working_dtype
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.rules.base import Call, Pointwise, pointwise


def _write_convert(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    return convert(args[0], call.in_dtypes[0], call.out_dtype)


def convert(x: ast.expr, source: np.dtype, target: np.dtype) -> ast.expr:
    """The value x, held as a `source`, as a `target`; 16-bit floats are rounded and stay float32."""
    if source == target:
        return x
    if is_bool(target):
        return expr("{} != 0", x)
    if is_float(source) and not is_float(target):
        return _to_integer(x, target)
    if working_dtype(target) != target and not _fits(source, target):
        if source == np.float64 and target != np.float16:
            x = expr("{}.to(tl.float32)", x)  # XLA rounds twice
        return expr("{}.to({}).to({})", x, triton_name(target), triton_name(working_dtype(target)))
    return x if working_dtype(source) == working_dtype(target) else held_as(x, target)


def held_as(x: ast.expr, dtype: np.dtype) -> ast.expr:
    """A value, cast to what kernels hold numbers of that dtype as."""
    return expr("{}.to({})", x, triton_name(working_dtype(dtype)))


def _fits(source: np.dtype, target: np.dtype) -> bool:
    """True if every value of `source` is one of the 16-bit float `target`."""
    return is_bool(source) or (source.itemsize == 1 and not is_float(source))


def _to_integer(x: ast.expr, target: np.dtype) -> ast.expr:
    """Towards zero; what is too large becomes the largest integer, what is too small the smallest, and NaN is 0."""
    lowest, highest = np.iinfo(target).min, np.iinfo(target).max
    inside = expr("tl.where({0} == {0}, {0}, 0).to({1})", x, triton_name(target))
    above = expr("tl.where({} >= {}, {}, {})", x, float(highest + 1), highest, inside)
    return expr("tl.where({} <= {}, {}, {})", x, 0 if is_unsigned(target) else float(lowest), lowest, above)


def _bitcast(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    x, source, target = args[0], call.in_dtypes[0], call.out_dtype
    if source == target:
        return x
    if working_dtype(source) != source:
        x = expr("{}.to({})", x, triton_name(source))
    x = expr("{}.to({}, bitcast=True)", x, triton_name(target))
    return x if working_dtype(target) == target else held_as(x, target)


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
