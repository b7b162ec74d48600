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
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import argument_names, avals, retrace
from jaxpr2triton.partition.cut import Cuts, elements, loads_of, reads
from jaxpr2triton.rules.nodes import Load, Reduce
from jaxpr2triton.rules.reductions import TABLE
from jaxpr2triton.rules.space import feeds_a_reduction

FEW_PROGRAMS = 128
PROGRAMS_WANTED = 512
LITTLE_WORK = 1 << 15
COMPANION_CHUNKS = 128  # programs that share the rows of an output and of a sum over its rows
ROWS_AT_LEAST = 16
WORTH_SHARING = 1 << 18  # elements of an operand
CHUNK_AT_LEAST = 4096  # elements, so that a chunk is worth a program and its partial result a small addition


@dataclass(frozen=True)
class Split:
    """A reduction in two steps: those of its dimensions that are cut into chunks, and how many; 1 is as good as one."""

    dims: tuple[int, ...]
    chunks: int


def to_split(cuts: Cuts) -> dict[Any, Split]:
    """The reductions that can be done in two steps."""
    boundaries = [eqn for eqn in cuts.jaxpr.eqns if eqn.primitive is boundary_p]
    halves = {atom for eqn in boundaries for atom in (eqn.invars[0], eqn.outvars[0])}  # of what was split before
    walked_anyway = {node.eqn for space in cuts.spaces.values() if space.inner for node in space.graph.of_kind(Reduce)}
    numbers = {id(eqn): (number,) for number, eqn in enumerate(cuts.jaxpr.eqns)}
    found: dict[Any, Split] = {}
    for root in cuts.roots:
        space = cuts.spaces[root]
        if space.inner or space.steps:
            continue
        inner = feeds_a_reduction(space.graph)
        for node in space.graph.of_kind(Reduce):
            eqn = node.eqn
            simple = (
                eqn.primitive.name in TABLE
                and TABLE[eqn.primitive.name].associative
                and eqn not in walked_anyway
                and not halves & {eqn.invars[0], eqn.outvars[0]}
            )
            if node in inner or not simple or space.parallel != math.prod(a.size for a in node.axes):
                continue
            below = {axis for other in inner for axis in other.over}
            axes = dict(zip(eqn.params["axes"], space.chosen[numbers[id(eqn)]]))
            dims = tuple(d for d, axis in axes.items() if axis not in below)  # the others are wanted whole
            if not dims:
                continue
            over = frozenset(node.over)
            rows = any(load.place and load.place[-1].axes & over for load in space.graph.of_kind(Load))
            work = math.prod(axis.size for axis in below | {axes[d] for d in axes if d not in dims})
            found[eqn] = Split(dims, _chunks(eqn, dims, rows, work))
    return found


def _chunks(eqn: Any, dims: tuple[int, ...], rows: bool, work: int) -> int:
    """How many; `rows` says that neighbours are added, and `work` elements are walked for each one that is reduced."""
    shape = eqn.invars[0].aval.shape
    results = math.prod(eqn.outvars[0].aval.shape)
    length = math.prod(shape[d] for d in dims)
    if length * results * work <= LITTLE_WORK:
        return 1
    programs = results if rows else max(1, results // 32)
    if programs >= FEW_PROGRAMS:
        return 1
    columns = 1 if rows else min(results, 64)
    most = length // max(CHUNK_AT_LEAST // (columns * work), 1)
    return max(1, min(PROGRAMS_WANTED // programs, most))


@dataclass(frozen=True)
class Chunked:
    """An array whose leading dimensions are seen as `chunks` chunks of `size` rows."""

    leading: int
    chunks: int
    size: int


def companions(cuts: Cuts, splits: dict[Any, Split]) -> dict[Any, Chunked]:
    """Outputs that the programs that sum their rows can write as well, by chunks; adjusts `splits` to fit.

    The backward pass of layer norm writes dx row by row and sums two products over all rows. As [chunk, row, column]
    all of them belong to one kernel, in which a program walks the rows of its chunk and reads them once.
    """
    outputs = {atom for atom in cuts.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    outputs -= {atom for eqn in cuts.outside for atom in eqn.invars if not isinstance(atom, jex.Literal)}
    found: dict[Any, Chunked] = {}
    for eqn, split in list(splits.items()):
        leading = len(split.dims)
        shape = eqn.invars[0].aval.shape
        if tuple(sorted(split.dims)) != tuple(range(leading)):
            continue
        rows = math.prod(shape[:leading])
        count = _even_chunks(rows)
        if count is None:
            continue
        kinds = cuts.classes.of(eqn.invars[0])[:leading]
        operands = _loads_below(cuts, eqn)
        for root in cuts.roots:
            same = cuts.classes.of(root)[:leading] == kinds and root.aval.shape[:leading] == shape[:leading]
            if not same or root not in outputs or reads(cuts.spaces[root], eqn):
                continue
            loads = set(loads_of(cuts, cuts.spaces[root]))
            shared = operands & loads if eqn.outvars[0] not in loads else set()
            if any(elements(operand) >= WORTH_SHARING for operand in shared):
                found[root] = Chunked(leading, count, rows // count)
                splits[eqn] = Split(split.dims, count)
    return found


def _even_chunks(rows: int) -> int | None:
    """The number of chunks of equal size, nearest above one for each processor; None if there is no such number."""
    fitting = (count for count in range(COMPANION_CHUNKS, 4 * COMPANION_CHUNKS + 1) if rows % count == 0)
    count = next(fitting, None)
    return count if count is not None and rows // count >= ROWS_AT_LEAST else None


def _loads_below(cuts: Cuts, eqn: Any) -> set[Any]:
    root = next(r for r in cuts.roots if any(node.eqn is eqn for node in cuts.spaces[r].graph.of_kind(Reduce)))
    return set(loads_of(cuts, cuts.spaces[root]))


def split_reductions(jaxpr: Any, splits: dict[Any, Split], chunked: dict[Any, Chunked]) -> Any:
    """The same program with those reductions in two steps, and those outputs seen in chunks."""
    inner = jaxpr.jaxpr

    def rewritten(*args: Any) -> list[Any]:
        env = dict(zip(inner.invars, args))

        long = {eqn: split for eqn, split in splits.items() if split.chunks > 1}
        run(inner.eqns, env, lambda eqn, values: [_in_two(eqn, values[0], long[eqn])] if eqn in long else None)
        outputs = [(atom, read(env, atom)) for atom in inner.outvars]
        shown = [(value, None if isinstance(atom, jex.Literal) else chunked.get(atom)) for atom, value in outputs]
        return [value if how is None else _seen_in_chunks(value, how) for value, how in shown]

    return retrace(rewritten, *avals(jaxpr), names=argument_names(jaxpr))


def _seen_in_chunks(value: Any, how: Chunked) -> Any:
    rest = value.shape[how.leading :]
    rows = value if how.leading == 1 else lax.reshape(value, (how.chunks * how.size, *rest))
    return lax.reshape(boundary_p.bind(lax.reshape(rows, (how.chunks, how.size, *rest))), value.shape)


def _in_two(eqn: Any, operand: Any, split: Split) -> Any:
    chunks = split.chunks
    dtype = eqn.outvars[0].aval.dtype
    wide = jnp.float32 if is_float(dtype) and jnp.dtype(dtype).itemsize == 2 else dtype
    axes = split.dims
    whole = tuple(d for d in eqn.params["axes"] if d not in axes)
    kept = (*whole, *(d for d in range(operand.ndim) if d not in eqn.params["axes"]))
    length = math.prod(operand.shape[d] for d in axes)
    size = -(-length // chunks)
    chunks = -(-length // size)
    turned = lax.transpose(operand, (*axes, *kept)) if axes + kept != tuple(range(operand.ndim)) else operand
    flat = lax.reshape(turned, (length, *turned.shape[len(axes) :])) if len(axes) > 1 else turned
    if wide != dtype:
        flat = lax.convert_element_type(flat, wide)
    if chunks * size != length:
        neutral = jnp.asarray(TABLE[eqn.primitive.name].identity(jnp.dtype(wide)), wide)
        flat = lax.pad(flat, neutral, [(0, chunks * size - length, 0)] + [(0, 0, 0)] * len(kept))
    parts = lax.reshape(flat, (chunks, size, *flat.shape[1:]))
    partial = boundary_p.bind(_reduce(eqn, parts, *range(1, 2 + len(whole))))
    result = _reduce(eqn, partial, 0)
    return lax.convert_element_type(result, dtype) if wide != dtype else result


def _reduce(eqn: Any, operand: Any, *axes: int) -> Any:
    return eqn.primitive.bind(operand, **{**eqn.params, "axes": axes})
