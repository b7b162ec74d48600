"""Powers, roots, exponentials, logarithms, and the special functions that come with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.calls import by_digits
from jaxpr2triton.rules.literals import constant, integer, is_bare, with_dtype
from jaxpr2triton.rules.pointwise.convert import convert


def _exp(x: str, dtype: np.dtype) -> str:
    """`tl.exp` of float32 is 2**(x log2 e) with one rounding in between: 60 ulp off near 80, but right for 16 bits."""
    return f"libdevice.exp({x})" if dtype == np.float32 else f"tl.exp({x})"


def _write_exp(call: Call, args: Sequence[str]) -> str:
    return _exp(args[0], call.in_dtypes[0])


def _logistic(call: Call, args: Sequence[str]) -> str:
    return f"{by_digits('_sigmoid', call.in_dtypes[0], 'tl.sigmoid')}({args[0]})"


def _sqrt(call: Call, args: Sequence[str]) -> str:
    """Correctly rounded; `tl.sqrt` is only so for float64, where `tl.sqrt_rn` does not exist."""
    return f"tl.sqrt({args[0]})" if call.in_dtypes[0] == np.float64 else f"tl.sqrt_rn({args[0]})"


def _pow(call: Call, args: Sequence[str]) -> str:
    """The exponent may be an integer; JAX rounds it to the dtype of the base."""
    base, exponent = call.in_dtypes
    x, y = args
    if base != exponent:
        y = constant(integer(y), base) if is_bare(y) else convert(y, exponent, base)
    return f"libdevice.pow({with_dtype(x, base)}, {with_dtype(y, base)})"


TABLE = {
    "exp": Pointwise(_write_exp, flops=8, instructions=9),
    "exp2": pointwise("tl.exp2({0})", flops=4),
    "expm1": pointwise("libdevice.expm1({0})", flops=16, instructions=26),
    "log": pointwise("tl.log({0})", flops=16, instructions=31),
    "log2": pointwise("tl.log2({0})", flops=16, instructions=32),
    "log1p": pointwise("libdevice.log1p({0})", flops=16, instructions=34),
    "logistic": Pointwise(_logistic, flops=12, instructions=8, helpers=("_sigmoid", "_sigmoid16")),
    "sqrt": Pointwise(_sqrt, flops=4, instructions=14),
    "rsqrt": pointwise("tl.rsqrt({0})", flops=4),
    "pow": Pointwise(_pow, flops=32, instructions=124),
    "erf": pointwise("tl.erf({0})", flops=16, instructions=32),
    "erfc": pointwise("libdevice.erfc({0})", flops=24, instructions=48),
    "erf_inv": pointwise("libdevice.erfinv({0})", flops=24, instructions=41),
    "lgamma": pointwise("libdevice.lgamma({0})", flops=40, instructions=215),
}
