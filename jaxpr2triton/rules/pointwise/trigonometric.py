"""Circular and hyperbolic functions and their inverses."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jaxpr2triton.ir.tree import call
from jaxpr2triton.rules.base import Call, Pointwise, pointwise
from jaxpr2triton.rules.calls import by_digits, function


def _tanh(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    return call(by_digits("_tanh", of.in_dtypes[0], "libdevice.tanh"), args[0])


TABLE = {
    "sin": pointwise("tl.sin({0})", flops=16, instructions=34),
    "cos": pointwise("tl.cos({0})", flops=16, instructions=36),
    "tan": pointwise("libdevice.tan({0})", flops=20, instructions=32),
    "asin": pointwise("libdevice.asin({0})", flops=16, instructions=18),
    "acos": pointwise("libdevice.acos({0})", flops=16, instructions=16),
    "atan": pointwise("libdevice.atan({0})", flops=16, instructions=40),
    "atan2": function("libdevice.atan2({0}, {1})", flops=24, instructions=61),
    "sinh": pointwise("libdevice.sinh({0})", flops=16, instructions=36),
    "cosh": pointwise("libdevice.cosh({0})", flops=16, instructions=19),
    "tanh": Pointwise(_tanh, flops=16, instructions=14, helpers=("_tanh", "_tanh16")),
    "asinh": pointwise("libdevice.asinh({0})", flops=24, instructions=58),
    "acosh": pointwise("libdevice.acosh({0})", flops=24, instructions=71),
    "atanh": pointwise("libdevice.atanh({0})", flops=24, instructions=44),
}
