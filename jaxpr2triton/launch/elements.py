"""Elements of buffers: Triton's names for them, and what stands for none."""

from __future__ import annotations

import numpy as np

from jaxpr2triton.ir.kernel import Buffer

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


def poison(dtype: np.dtype) -> np.generic:
    """A number that stands for "undefined": NaN, or bytes of 0xA5."""
    if dtype.kind == "f":
        return dtype.type(np.nan)
    return np.frombuffer(b"\xa5" * dtype.itemsize, dtype)[0] if dtype.kind in "iu" else dtype.type(True)


def poisoned(buffer: Buffer) -> np.ndarray:
    """What a kernel finds where it has written nothing yet."""
    if buffer.begins_as_zero:
        return np.zeros(buffer.shape, buffer.dtype)
    if buffer.dtype.kind in "biu":
        return np.full(buffer.shape, poison(buffer.dtype))
    return np.full(buffer.shape, np.nan, buffer.dtype)
