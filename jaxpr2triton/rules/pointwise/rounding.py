"""Rounding to whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jax import lax

from jaxpr2triton.ir.tree import call
from jaxpr2triton.rules.base import Call, Pointwise, pointwise


def _round(of: Call, args: Sequence[ast.expr]) -> ast.expr:
    to_even = of.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return call("libdevice.nearbyint" if to_even else "libdevice.round", args[0])


TABLE = {
    "floor": pointwise("tl.floor({0})"),
    "ceil": pointwise("tl.ceil({0})"),
    "round": Pointwise(_round, flops=2),
}
