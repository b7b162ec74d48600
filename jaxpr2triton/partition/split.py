"""Rewrite: a long reduction with few results becomes two, so that many programs share the work.

    r:f32[64] = reduce_sum[axes=(0,)] a:f32[100000,64]
        →
    p:f32[512,196,64] = reshape (pad a)                 # chunks; the padding is the neutral element
    q:f32[512,64]     = boundary (reduce_sum[axes=(1,)] p)
    r:f32[64]         = reduce_sum[axes=(0,)] q

Padding and reshaping only change the index that is asked for. The order of additions is fixed, so results repeat.
It leaves alone reductions whose result another reduction of the same kernel reads, and those that look for a place.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import argument_names, avals, retrace
from jaxpr2triton.partition.cut import Cuts
from jaxpr2triton.rules.demand import Reduce
from jaxpr2triton.rules.reductions import TABLE
from jaxpr2triton.rules.space import feeds_a_reduction

FEW_PROGRAMS = 128
PROGRAMS_WANTED = 512
LITTLE_WORK = 1 << 15
CHUNK_AT_LEAST = 4096  # elements, so that a chunk is worth a program and its partial result a small addition


def to_split(cuts: Cuts) -> dict[Any, int]:
    """The reductions that are better done in two steps, and in how many chunks."""
    boundaries = [eqn for eqn in cuts.jaxpr.eqns if eqn.primitive is boundary_p]
    halves = {atom for eqn in boundaries for atom in (eqn.invars[0], eqn.outvars[0])}  # of what was split before
    found: dict[Any, int] = {}
    for root in cuts.roots:
        space = cuts.spaces[root]
        if space.inner:
            continue
        inner = feeds_a_reduction(space.graph)
        for node in space.graph.of_kind(Reduce):
            eqn = node.eqn
            simple = TABLE[eqn.primitive.name].associative and not halves & {eqn.invars[0], eqn.outvars[0]}
            if node in inner or not simple or space.parallel != math.prod(a.size for a in node.axes):
                continue
            if any(other in inner for other in space.graph.of_kind(Reduce)):
                continue
            chunks = _chunks(eqn)
            if chunks > 1:
                found[eqn] = chunks
    return found


def _chunks(eqn: Any) -> int:
    shape = eqn.invars[0].aval.shape
    results = math.prod(eqn.outvars[0].aval.shape)
    length = math.prod(shape[d] for d in eqn.params["axes"])
    if length * results <= LITTLE_WORK:
        return 1
    rows = len(shape) - 1 in eqn.params["axes"]
    programs = results if rows else max(1, results // 32)
    if programs >= FEW_PROGRAMS:
        return 1
    columns = 1 if rows else min(results, 64)
    most = length // max(CHUNK_AT_LEAST // columns, 1)
    return max(1, min(PROGRAMS_WANTED // programs, most))


def split_reductions(jaxpr: Any, chunks: dict[Any, int]) -> Any:
    """The same program with those reductions in two steps."""
    inner = jaxpr.jaxpr

    def rewritten(*args: Any) -> list[Any]:
        env = dict(zip(inner.invars, args))
        run(inner.eqns, env, lambda eqn, values: [_in_two(eqn, values[0], chunks[eqn])] if eqn in chunks else None)
        return [read(env, atom) for atom in inner.outvars]

    return retrace(rewritten, *avals(jaxpr), names=argument_names(jaxpr))


def _in_two(eqn: Any, operand: Any, chunks: int) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    wide = jnp.float32 if is_float(dtype) and jnp.dtype(dtype).itemsize == 2 else dtype
    axes = tuple(eqn.params["axes"])
    kept = tuple(d for d in range(operand.ndim) if d not in axes)
    length = math.prod(operand.shape[d] for d in axes)
    size = -(-length // chunks)
    chunks = -(-length // size)
    turned = lax.transpose(operand, (*axes, *kept)) if axes + kept != tuple(range(operand.ndim)) else operand
    flat = lax.reshape(turned, (length, *turned.shape[len(axes) :]))
    if wide != dtype:
        flat = lax.convert_element_type(flat, wide)
    if chunks * size != length:
        neutral = jnp.asarray(TABLE[eqn.primitive.name].identity(jnp.dtype(wide)), wide)
        flat = lax.pad(flat, neutral, [(0, chunks * size - length, 0)] + [(0, 0, 0)] * len(kept))
    parts = lax.reshape(flat, (chunks, size, *flat.shape[1:]))
    partial = boundary_p.bind(_reduce(eqn, parts, 1))
    result = _reduce(eqn, partial, 0)
    return lax.convert_element_type(result, dtype) if wide != dtype else result


def _reduce(eqn: Any, operand: Any, axis: int) -> Any:
    return eqn.primitive.bind(operand, **{**eqn.params, "axes": (axis,)})
