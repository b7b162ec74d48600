"""Rounding to whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from jaxpr2triton.rules.base import Call, Pointwise, pointwise


def _round(call: Call, args: Sequence[str]) -> str:
    to_even = call.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return f"libdevice.nearbyint({args[0]})" if to_even else f"libdevice.round({args[0]})"


TABLE = {
    "floor": pointwise("tl.floor({0})"),
    "ceil": pointwise("tl.ceil({0})"),
    "round": Pointwise(_round, flops=2),
}
