"""Decompositions against their primitives: the same numbers, the same dtype, and nothing inside without a row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pointwise_cases import BOOL, DTYPES, FLOATS, INTEGERS, agree, arrays_for, compiled, exists, primitive, widened

from jaxpr2triton.rules.decompose import DECOMPOSITIONS
from jaxpr2triton.rules.table import POINTWISE

Signature = tuple[np.dtype, ...]
Params = dict[str, Any]

ORDER = [(dtype, dtype) for dtype in DTYPES]
POWERS: list[Params] = [{"y": y} for y in (-5, -2, -1, 0, 1, 2, 3, 4, 7, 10)]
FORMATS: list[Params] = [
    {"exponent_bits": exponent, "mantissa_bits": mantissa}
    for exponent, mantissa in ((8, 7), (5, 10), (8, 10), (5, 2), (4, 3), (3, 4), (8, 23), (11, 52), (8, 1), (2, 1))
]


def signatures(name: str) -> Iterator[tuple[Signature, Params]]:
    """The calls of a primitive that are tested."""
    match name:
        case "integer_pow":
            yield from itertools.product([(dtype,) for dtype in FLOATS], POWERS)
            yield from itertools.product([(dtype,) for dtype in INTEGERS], [p for p in POWERS if p["y"] >= 0])
        case "polynomial":
            yield from (((dtype,) * count, {}) for dtype in FLOATS for count in (2, 3, 5))
        case "reduce_precision":
            yield from itertools.product([(dtype,) for dtype in FLOATS], FORMATS)
        case "cbrt" | "digamma":
            yield from (((dtype,), {}) for dtype in FLOATS)
        case "nextafter":
            yield from (((dtype, dtype), {}) for dtype in FLOATS)
        case "eq_to" | "le_to" | "lt_to":
            yield from ((dtypes, {}) for dtypes in ORDER if name == "eq_to" or dtypes[0] != BOOL)
        case "population_count" | "clz":
            yield from (((dtype,), {}) for dtype in INTEGERS)


DIGITS = {"cbrt": 4, "digamma": 64, "integer_pow": 16, "polynomial": 16}
FLOOR = {"digamma": 1.0, "polynomial": 1e4}
WITH_ROWS = {*POINTWISE, "broadcast_in_dim"}
CASES = [(name, dtypes, params) for name in DECOMPOSITIONS if exists(name) for dtypes, params in signatures(name)]


def show(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value.values() if isinstance(value, dict) else value))
