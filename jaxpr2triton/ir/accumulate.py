"""What meets at computed places of an array, in a kernel that has all of it: added up in memory.

    c:f32[9] = accumulate[op=add batch=0 indexed=1] a:f32[9] i:i32[50,1] u:f32[50,1]

`a` has batches first, then the dimensions that are indexed, then those that each update has whole. Indices and updates
have one dimension more before all of these, along which they meet; an update has a window along what is indexed. What
lies outside is dropped, a window as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend.core as jex
from jax import lax
from jax.interpreters import mlir

accumulate_p = jex.Primitive("accumulate")

OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": lax.scatter_add,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}


@accumulate_p.def_impl
def _accumulate_impl(operand: Any, indices: Any, updates: Any, *, op: str, batch: int, indexed: int) -> Any:
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1 + batch, updates.ndim)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=tuple(range(batch, batch + indexed)),
        operand_batching_dims=tuple(range(batch)),
        scatter_indices_batching_dims=tuple(range(1, 1 + batch)),
    )
    mode = lax.GatherScatterMode.FILL_OR_DROP
    return OPERATIONS[op](operand, indices, updates, numbers, mode=mode)


@accumulate_p.def_abstract_eval
def _accumulate_aval(operand: Any, indices: Any, updates: Any, *, op: str, batch: int, indexed: int) -> Any:
    return jax.core.ShapedArray(operand.shape, operand.dtype)


mlir.register_lowering(accumulate_p, mlir.lower_fun(_accumulate_impl, multiple_results=False))
