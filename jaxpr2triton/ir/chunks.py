"""The primitive of a program that is run for some rows at a time, of the same number in each chunk.

    y, s = chunks[length=4 jaxpr=f in_dims=(0, None) out_dims=(0, None)] x w        x:f32[4096,768]  y:f32[4096,32]

`f` takes the number of the chunk, 1024 rows of `x` and all of `w`. It makes 1024 rows of `y`, which are put together,
and a part of `s`: those are added up in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

from jaxpr2triton.ir.jaxprs import Closed, Eqn

Run = Callable[..., Sequence[Any]]
Dims = tuple[int | None, ...]  # of each operand or result: along which it has rows; None of a whole one, or of a sum

chunks_p = jex.Primitive("chunks")
chunks_p.multiple_results = True


def run_chunks(eqn: Eqn, operands: Sequence[Any], run: Run) -> list[Any]:
    """The results of an equation, where `run` makes those of a chunk."""
    return _results(operands, run, **{name: eqn.params[name] for name in ("jaxpr", "length", "in_dims", "out_dims")})


def _results(
    operands: Sequence[Any],
    run: Run,
    jaxpr: Closed,
    length: int,
    in_dims: Dims,
    out_dims: Dims,
) -> list[Any]:
    def step(number: Any, made: list[Any]) -> list[Any]:
        number = lax.convert_element_type(number, np.int32)
        rows = [each if d is None else _rows(each, number, length, d) for each, d in zip(operands, in_dims)]
        return [_with(*each, number) for each in zip(made, run(number, *rows), out_dims, strict=True)]

    types = _types(jaxpr, length, out_dims)
    first = [jnp.full(aval.shape, -0.0, aval.dtype) for aval in types]  # which changes no sum, not that of -0.0 either
    return list(lax.fori_loop(0, length, step, first))


def _rows(value: Any, number: Any, length: int, dim: int) -> Any:
    size = value.shape[dim] // length
    return lax.dynamic_slice_in_dim(value, number * size, size, dim)


def _with(made: Any, part: Any, dim: int | None, number: Any) -> Any:
    """What is made so far, with that of one more chunk."""
    if dim is None:
        return lax.add(made, part)
    return lax.dynamic_update_slice_in_dim(made, part, number * part.shape[dim], dim)


def _types(jaxpr: Closed, length: int, out_dims: Dims) -> list[Any]:
    types = []
    for aval, dim in zip(jaxpr.out_avals, out_dims, strict=True):
        shape = tuple(size * length if d == dim else size for d, size in enumerate(aval.shape))
        types.append(jax.core.ShapedArray(shape, aval.dtype))
    return types


@chunks_p.def_impl
def _chunks_impl(*args: Any, jaxpr: Any, length: int, in_dims: Dims, out_dims: Dims, why: Any) -> list[Any]:
    def run(*values: Any) -> list[Any]:
        return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *values)

    return _results(args, run, jaxpr, length, in_dims, out_dims)


@chunks_p.def_abstract_eval
def _chunks_avals(*args: Any, jaxpr: Any, length: int, in_dims: Dims, out_dims: Dims, why: Any) -> list[Any]:
    return _types(jaxpr, length, out_dims)


mlir.register_lowering(chunks_p, mlir.lower_fun(_chunks_impl, multiple_results=True))
