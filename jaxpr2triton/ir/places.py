"""Where the elements of a row are found in order: `x[places(x)]` is sorted, and what is equal stays in its order."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from jaxpr2triton.ir import batched

places_p = jex.Primitive("places")  # of integers with a sign


@places_p.def_impl
def _places_impl(keys: Any, *, axis: int) -> Any:
    return jnp.argsort(keys, axis=axis, stable=True).astype(np.int32)


@places_p.def_abstract_eval
def _places_aval(keys: Any, *, axis: int) -> Any:
    return jax.core.ShapedArray(keys.shape, np.int32)


mlir.register_lowering(places_p, mlir.lower_fun(_places_impl, multiple_results=False))
batched.define(places_p, along="axis")
