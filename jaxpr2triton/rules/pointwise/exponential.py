"""Powers, roots, exponentials, logarithms, and the special functions that come with them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from jaxpr2triton.ir.tree import call
from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.calls import by_digits
from jaxpr2triton.rules.literals import constant, integer, is_bare, with_dtype
from jaxpr2triton.rules.pointwise.convert import convert


def _exp(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    """`tl.exp` of float32 is 2**(x log2 e) with one rounding in between: 60 ulp off near 80, but right for 16 bits."""
    return call("libdevice.exp" if of.in_dtypes[0] == np.float32 else "tl.exp", args[0])


def _logistic(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    return call(by_digits("_sigmoid", of.in_dtypes[0], "tl.sigmoid"), args[0])


def _sqrt(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    """Correctly rounded; `tl.sqrt` is only so for float64, where `tl.sqrt_rn` does not exist."""
    return call("tl.sqrt" if of.in_dtypes[0] == np.float64 else "tl.sqrt_rn", args[0])


def _pow(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    """The exponent may be an integer; JAX rounds it to the dtype of the base."""
    base, exponent = of.in_dtypes
    x, y = args
    if base != exponent:
        y = constant(integer(y), base) if is_bare(y) else convert(y, exponent, base)
    return call("libdevice.pow", with_dtype(x, base), with_dtype(y, base))


TABLE = {
    "exp": Pointwise(_exp, flops=8, instructions=9),
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
