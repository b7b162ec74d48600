"""Triton's names for the elements of buffers."""

from __future__ import annotations

import numpy as np

_NAMES = {
    "bool": "i1",
    "bfloat16": "bf16",
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}


def element_name(dtype: np.dtype) -> str:
    """float32 → fp32, bool → i1."""
    return _NAMES[str(dtype)]
