"""All pointwise rows in one table."""

from __future__ import annotations

from jaxpr2triton.rules.base import Pointwise, merge_tables
from jaxpr2triton.rules.pointwise import arithmetic, bits, comparison, convert, exponential, rounding, trigonometric

POINTWISE: dict[str, Pointwise] = merge_tables(
    arithmetic.TABLE,
    comparison.TABLE,
    exponential.TABLE,
    trigonometric.TABLE,
    rounding.TABLE,
    convert.TABLE,
    bits.TABLE,
)
