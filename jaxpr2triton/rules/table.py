"""All pointwise rows in one table."""

from __future__ import annotations

from jaxpr2triton.rules import arithmetic, bits, comparison, convert, exponential, rounding, trigonometric
from jaxpr2triton.rules.base import Pointwise, merge_tables

POINTWISE: dict[str, Pointwise] = merge_tables(
    arithmetic.TABLE,
    comparison.TABLE,
    exponential.TABLE,
    trigonometric.TABLE,
    rounding.TABLE,
    convert.TABLE,
    bits.TABLE,
)
