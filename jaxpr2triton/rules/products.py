"""Contractions: what of them Triton multiplies as matrices, and how exactly.

    dot_general[precision=HIGHEST] x:f32 w:f32         tl.dot(x, w, acc, input_precision="ieee")
    dot_general x:f32 w:f32                            tl.dot(x, w, acc, input_precision="tf32")
    dot_general x:bf16 w:bf16                          tl.dot(x, w, acc)
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.dtypes import is_float

LEAST = 16  # rows, columns and terms that Triton multiplies, for every dtype
EXACT = "ieee"
TF32 = "tf32"  # 10 bits of each factor, as XLA:GPU does where nothing else is asked for

_UNSAID = (None, lax.Precision.DEFAULT, lax.DotAlgorithmPreset.DEFAULT)
_BY_PRECISION: dict[Any, str] = {
    **dict.fromkeys(_UNSAID, TF32),
    lax.Precision.HIGH: "tf32x3",
    lax.Precision.HIGHEST: "ieee",
    lax.DotAlgorithmPreset.TF32_TF32_F32: TF32,
    lax.DotAlgorithmPreset.TF32_TF32_F32_X3: "tf32x3",
    lax.DotAlgorithmPreset.F32_F32_F32: "ieee",
}
_NARROW = {  # what factors are rounded to
    lax.DotAlgorithmPreset.BF16_BF16_F32: np.dtype(jax.numpy.bfloat16),
    lax.DotAlgorithmPreset.F16_F16_F32: np.dtype(np.float16),
}


def why_not(eqn: Any) -> WhyNot | None:
    """Why no kernel computes this contraction; None if one does."""
    if "why" in eqn.params:
        refusal: WhyNot = eqn.params["why"]
        return refusal
    precision = _asked(eqn)
    known = precision in _BY_PRECISION or precision in _NARROW
    if np.dtype(eqn.outvars[0].aval.dtype) == np.float32 and not known:
        return WhyNot(f"no kernel multiplies with the algorithm {precision}")
    return None


def input_precision(eqn: Any, target: Target) -> str:
    """How exactly two f32 values are multiplied: a word of Triton's. Only NVIDIA's have units for less."""
    asked = _asked(eqn)
    if target.backend != "cuda" or (asked in _UNSAID and not target.tf32):
        return EXACT
    return _BY_PRECISION.get(asked, EXACT)


def is_unsaid(eqn: Any) -> bool:
    """Whether f32 is multiplied as exactly as is usual where the program runs."""
    return eqn.outvars[0].aval.dtype == np.float32 and _asked(eqn) in _UNSAID


def _asked(eqn: Any) -> Any:
    """What the user asked for; of two precisions the higher one."""
    asked = eqn.params["precision"]
    if isinstance(asked, tuple):
        asked = max((each or lax.Precision.DEFAULT for each in asked), key=list(lax.Precision).index)
    return asked


def factor_dtype(eqn: Any) -> np.dtype | None:
    """The dtype in which Triton multiplies both factors; None if it does not.

    Integers it multiplies by eight bits only.
    """
    left, right = (np.dtype(var.aval.dtype) for var in eqn.invars)
    dtype = np.dtype(jax.numpy.promote_types(left, right))
    if is_float(dtype):
        return _NARROW.get(_asked(eqn), dtype)
    return dtype if dtype == np.int8 and eqn.outvars[0].aval.dtype == np.int32 else None


def has_units_for(dtype: np.dtype, target: Target) -> bool:
    """Whether Triton multiplies blocks of this dtype there; its compiler for AMD's devices fails with f64."""
    return dtype.itemsize <= 4 or target.backend == "cuda"
