"""Sums, products, quotients, signs, the larger and the smaller."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.ir.dtypes import is_float, is_signed, triton_name
from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.calls import function
from jaxpr2triton.rules.literals import as_tensor, integer, is_bare

_KEEP_NAN = "propagate_nan=tl.PropagateNan.ALL"  # as JAX does; Triton's default drops NaN


def _quotient(call: Call, args: Sequence[str]) -> str:
    """Integers: truncated; x / 0 has all bits set, and min / -1 is min."""
    x, y = args
    dtype = call.in_dtypes[0]
    if is_float(dtype):
        return f"{x} / {y}"
    all_bits = -1 if is_signed(dtype) else np.iinfo(dtype).max
    if is_bare(y):
        match integer(y):
            case 0:
                return f"{x} | {all_bits}"
            case -1:
                return f"-{x}"
            case _:
                return f"{x} // {y}"
    x = as_tensor(x, dtype)
    if is_signed(dtype):
        quotient = f"tl.where({y} == -1, -{x}, {x} // tl.where(({y} == 0) | ({y} == -1), 1, {y}))"
    else:
        quotient = f"{x} // tl.where({y} == 0, 1, {y})"
    return f"tl.where({y} == 0, {all_bits}, {quotient})"


def _remainder(call: Call, args: Sequence[str]) -> str:
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
                return f"{x} - {x}"
            case _:
                return f"{x} % {y}"
    unsafe = f"({y} == 0) | ({y} == -1)" if is_signed(dtype) else f"{y} == 0"
    return f"tl.where({y} == 0, {x}, {as_tensor(x, dtype)} % tl.where({unsafe}, 1, {y}))"


_FMOD = function("libdevice.fmod({0}, {1})")


def _high_product(call: Call, args: Sequence[str]) -> str:
    """The upper half of the double-width product."""
    dtype = call.in_dtypes[0]
    bits, name = dtype.itemsize * 8, triton_name(dtype)
    x, y = (as_tensor(arg, dtype) for arg in args)
    if bits < 32:
        wide = "tl.int32" if is_signed(dtype) else "tl.uint32"
        return f"(({x}.to({wide}) * {y}.to({wide})) >> {bits}).to({name})"
    if not is_signed(dtype):
        return f"tl.umulhi({x}, {y})"
    unsigned = f"tl.uint{bits}"
    product = f"tl.umulhi({x}.to({unsigned}), {y}.to({unsigned})).to({name})"
    return f"{product} - tl.where({x} < 0, {y}, 0) - tl.where({y} < 0, {x}, 0)"


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
