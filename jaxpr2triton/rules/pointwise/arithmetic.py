"""Sums, products, quotients, signs, the larger and the smaller."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from jaxpr2triton.ir.dtypes import is_float, is_signed, triton_name
from jaxpr2triton.ir.tree import expr
from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.calls import function
from jaxpr2triton.rules.literals import as_tensor, integer, is_bare

_KEEP_NAN = "propagate_nan=tl.PropagateNan.ALL"  # as JAX does; Triton's default drops NaN


def _quotient(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    """Integers: truncated; x / 0 has all bits set, and min / -1 is min."""
    x, y = args
    dtype = call.in_dtypes[0]
    if is_float(dtype):
        return expr("{} / {}", x, y)
    all_bits = -1 if is_signed(dtype) else np.iinfo(dtype).max
    if is_bare(y):
        match integer(y):
            case 0:
                return expr("{} | {}", x, all_bits)
            case -1:
                return expr("-{}", x)
            case _:
                return expr("{} // {}", x, y)
    x = as_tensor(x, dtype)
    if is_signed(dtype):
        quotient = expr("tl.where({1} == -1, -{0}, {0} // tl.where(({1} == 0) | ({1} == -1), 1, {1}))", x, y)
    else:
        quotient = expr("{0} // tl.where({1} == 0, 1, {1})", x, y)
    return expr("tl.where({} == 0, {}, {})", y, all_bits, quotient)


def _remainder(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    """Integers: has the sign of x; x % 0 is x, and min % -1 is 0."""
    x, y = args
    dtype = call.in_dtypes[0]
    if is_float(dtype):
        return _FMOD.write(call, args)  # `%` rounds its quotient and loses digits
    if is_bare(y):
        match integer(y):
            case 0:
                return x
            case -1:
                return expr("{0} - {0}", x)
            case _:
                return expr("{} % {}", x, y)
    unsafe = expr("({0} == 0) | ({0} == -1)" if is_signed(dtype) else "{} == 0", y)
    return expr("tl.where({0} == 0, {1}, {2} % tl.where({3}, 1, {0}))", y, x, as_tensor(x, dtype), unsafe)


_FMOD = function("libdevice.fmod({0}, {1})")


def _high_product(call: Call, args: Sequence[ast.expr]) -> ast.expr:
    """The upper half of the double-width product."""
    dtype = call.in_dtypes[0]
    bits, name = dtype.itemsize * 8, triton_name(dtype)
    x, y = (as_tensor(arg, dtype) for arg in args)
    if bits < 32:
        wide = "tl.int32" if is_signed(dtype) else "tl.uint32"
        return expr("(({}.to({wide}) * {}.to({wide})) >> {}).to({})", x, y, bits, name, wide=wide)
    if not is_signed(dtype):
        return expr("tl.umulhi({}, {})", x, y)
    product = expr("tl.umulhi({}.to({wide}), {}.to({wide})).to({})", x, y, name, wide=f"tl.uint{bits}")
    return expr("{} - tl.where({x} < 0, {y}, 0) - tl.where({y} < 0, {x}, 0)", product, x=x, y=y)


TABLE = {
    "add": pointwise("{0} + {1}"),
    "add_any": pointwise("{0} + {1}"),
    "sub": pointwise("{0} - {1}"),
    "mul": pointwise("{0} * {1}", linear_in=(0, 1)),
    "mulhi": Pointwise(_high_product, flops=4),
    "div": Pointwise(_quotient, flops=8, linear_in=(0,)),
    "rem": Pointwise(_remainder, flops=16, instructions=49),
    "neg": pointwise("-{0}", float="-1.0 * {0}", linear_in=(0,)),  # Triton's minus is 0 - x, and 0 - 0.0 is not -0.0
    "abs": pointwise("tl.abs({0})"),
    "sign": pointwise("tl.where({0} > 0, 1, tl.where({0} < 0, -1, {0}))", uint="tl.where({0} > 0, 1, {0})", flops=4),
    "square": pointwise("{0} * {0}"),
    "one_minus_square": pointwise("(1 + {0}) * (1 - {0})", flops=3),
    "max": function("tl.maximum({0}, {1})", float=f"tl.maximum({{0}}, {{1}}, {_KEEP_NAN})", bool="{0} | {1}"),
    "min": function("tl.minimum({0}, {1})", float=f"tl.minimum({{0}}, {{1}}, {_KEEP_NAN})", bool="{0} & {1}"),
    "clamp": function(
        "tl.minimum(tl.maximum({1}, {0}), {2})",
        float=f"tl.minimum(tl.maximum({{1}}, {{0}}, {_KEEP_NAN}), {{2}}, {_KEEP_NAN})",
        bool="({1} | {0}) & {2}",
        flops=2,
    ),
}
