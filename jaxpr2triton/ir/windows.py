"""Windows along a dimension as one equation, which only says where each of their elements is.

    y:f32[n,4,3,c] = windowed[dim=1 count=4 stride=2 size=3 dilation=1] x:f32[n,9,c]       y[n,i,k,c] = x[n, 2*i + k, c]
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.interpreters import mlir

from jaxpr2triton.ir import batched

windowed_p = jex.Primitive("windowed")


def windowed(x: Any, dim: int, count: int, stride: int, size: int, dilation: int = 1) -> Any:
    """`count` windows of `size` elements in the place of a dimension, which holds all of them."""
    return windowed_p.bind(x, dim=dim, count=count, stride=stride, size=size, dilation=dilation)


def _run(x: Any, *, dim: int, count: int, stride: int, size: int, dilation: int) -> Any:
    places = stride * np.arange(count)[:, None] + dilation * np.arange(size)
    return jnp.take(x, places, axis=dim, mode="clip")


windowed_p.def_impl(_run)


@windowed_p.def_abstract_eval
def _aval(x: Any, *, dim: int, count: int, stride: int, size: int, dilation: int) -> Any:
    assert (count - 1) * stride + (size - 1) * dilation < x.shape[dim]
    return core.ShapedArray((*x.shape[:dim], count, size, *x.shape[dim + 1 :]), x.dtype)


mlir.register_lowering(windowed_p, mlir.lower_fun(_run, multiple_results=False))
batched.define(windowed_p, along="dim")
