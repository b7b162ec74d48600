"""Rewrite: a running sum along a long axis becomes one within chunks, and one of the chunks' totals.

    c:f32[100000] = cumsum[axis=0] a
        →
    p:f32[49,2048] = reshape (pad a)                # the padding is the neutral element
    t:f32[49] = boundary (reduce_sum[axes=(1,)] p)
    s:f32[49] = boundary (pad[padding_config=((1, -1, 0),)] (cumsum[axis=0] t))      # what comes before a chunk
    c:f32[100000] = slice (reshape (add (cumsum[axis=1] p) (broadcast_in_dim s)))

What is made of c is written in the same chunks, so that the third kernel is the one that c would have been part of.
Where not all of that can be seen in chunks, c itself is written, and read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.graph.nodes import Swept, Take
from jaxpr2triton.graph.space import Space
from jaxpr2triton.hardware import SECTOR
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.region import boundary_p, chunked_p
from jaxpr2triton.ir.scanned import combined, only_valid, scanned_p
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.split import Chunked
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.sweeps import TABLE, axis_of

Array = jax.Array


@dataclass
class LongSweeps:
    """Which sweeps are done in chunks of how many elements, what is seen in these, and what is written by itself."""

    sizes: dict[Eqn, int] = field(default_factory=dict)
    seen: dict[Var, Chunked] = field(default_factory=dict)
    apart: set[Eqn] = field(default_factory=set)
    whole: set[Eqn] = field(default_factory=set)  # what has no parts, and comes into memory as well

    def rewritten(self) -> Mapping[Eqn, Callable[..., Array]]:
        shared: Shared = {}
        in_chunks = {
            eqn: partial(_scanned_in_chunks, shared, eqn, size, eqn in self.apart)
            if eqn.primitive is scanned_p
            else partial(_in_chunks, eqn, size, eqn in self.apart)
            for eqn, size in self.sizes.items()
        }
        return {**in_chunks, **{eqn: partial(_into_memory, eqn) for eqn in self.whole}}


def long_sweeps(cuts: Cuts) -> LongSweeps:
    """The sweeps along axes that are too long for the lanes of one program."""
    found = LongSweeps()
    for root in cuts.roots:
        space = cuts.spaces[root]
        sizes: dict[Axis, int] = {}
        for node in space.graph.of_kind(Swept):
            if size := _chunk_of(node.eqn, cuts.policy):
                sizes[node.axis] = min(size, sizes.get(node.axis, size))
        along = {node.eqn: sizes[node.axis] for node in space.graph.of_kind(Swept) if node.axis in sizes}
        in_parts = {eqn: size for eqn, size in along.items() if _has_parts(eqn)}
        for eqn, size in in_parts.items():
            found.sizes[eqn] = min(size, found.sizes.get(eqn, size))
        found.whole.update(along.keys() - in_parts.keys())
        dims = _dims(space, root, sizes) if sizes and not space.steps and len(in_parts) == len(along) else None
        if dims is not None:
            found.seen[root] = Chunked((dims,), min(sizes.values()))
        else:
            found.apart.update(in_parts)
    return found


def _chunk_of(eqn: Eqn, policy: Policy) -> int | None:
    """How many elements a chunk has; None if the axis is short enough for one."""
    shape, dim = eqn.outvars[0].aval.shape, axis_of(eqn)
    beside = 1 if math.prod(shape[dim + 1 :]) == 1 else SECTOR // 2
    most = policy.blocks.piece // beside
    return most // 2 if shape[dim] > most and _has_parts(eqn) else None


def _has_parts(eqn: Eqn) -> bool:
    """Whether it can be done chunk by chunk, which sorting cannot."""
    return eqn.primitive.name in _TOTAL or eqn.primitive is scanned_p


def _dims(space: Space, root: Var, sizes: Iterable[Axis]) -> int | None:
    """The dimension in which a root can be seen in chunks of what is swept, if there is just one for all that is."""
    axes = list(sizes)
    taken = any(isinstance(node.source, Swept) and node.source.axis in axes for node in space.graph.of_kind(Take))
    place = dict(zip(space.outputs, space.places))[root]
    dims = [d for d, index in enumerate(place) if index == of_axis(axes[0])]
    swept = [node.eqn.outvars[0].aval.shape for node in space.graph.of_kind(Swept) if node.axis in axes]
    alike = all(shape == root.aval.shape for shape in swept)
    return dims[0] if len(axes) == len(dims) == 1 and alike and not taken else None


def _into_memory(eqn: Eqn, *operands: Array) -> Array:
    return boundary_p.bind(eqn.primitive.bind(*operands, **eqn.params), dim=axis_of(eqn))


def _in_chunks(eqn: Eqn, size: int, apart: bool, operand: Array) -> Array:
    dim, name, reverse = axis_of(eqn), eqn.primitive.name, eqn.params["reverse"]
    length, out = operand.shape[dim], eqn.outvars[0].aval
    chunks = -(-length // size)
    wide = lax.convert_element_type(operand, working_dtype(out.dtype))
    identity = TABLE[name].identity
    assert identity is not None  # rows that are too long to be sorted stay with XLA
    neutral = jnp.asarray(identity(wide.dtype), wide.dtype)

    def padded(x: Array, low: int, high: int) -> Array:
        return lax.pad(x, neutral, [(low, high, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)])

    whole = padded(wide, 0, chunks * size - length) if chunks * size > length else wide
    parts = lax.reshape(whole, (*whole.shape[:dim], chunks, size, *whole.shape[dim + 1 :]))
    totals = boundary_p.bind(_TOTAL[name](parts, dim + 1), dim=dim)
    running = eqn.primitive.bind(totals, **eqn.params)
    before = boundary_p.bind(padded(running, -1, 1) if reverse else padded(running, 1, -1), dim=dim)
    within = eqn.primitive.bind(parts, **{**eqn.params, "axis": dim + 1})
    beside = lax.broadcast_in_dim(before, parts.shape, [d for d in range(parts.ndim) if d != dim + 1])
    both = lax.reshape(_COMBINE[name](beside, within), whole.shape)
    result = lax.slice_in_dim(both, 0, length, axis=dim) if chunks * size > length else both
    result = lax.convert_element_type(result, out.dtype)
    return boundary_p.bind(chunked_p.bind(result, dim=dim, size=size), dim=dim) if apart else result


Shared = dict[Hashable, tuple[list[Array], list[Array]]]  # parts of a scan in chunks, and what comes before these


def _scanned_in_chunks(shared: Shared, eqn: Eqn, size: int, apart: bool, *operands: Array) -> Array:
    """An associative scan: what the chunk before ends with, combined with what is in the chunk up to here.

    There need not be an element that changes nothing: nothing is before the first chunk, and if that is the last one,
    in reverse, a further part says which elements there are.
    """
    how, dim, length = dict(eqn.params), axis_of(eqn), operands[0].shape[axis_of(eqn)]
    output, reverse, combine = how["output"], how["reverse"], how["combine"]
    chunks = -(-length // size)
    if reverse and chunks * size > length:
        combine = how["combine"] = only_valid(combine)
        operands = (*operands, lax.full(operands[0].shape, True))
    key = tuple(map(id, operands[: eqn.params["combine"].parts])), eqn.params["combine"], dim, reverse, size
    if key not in shared:
        shared[key] = _chunks_and_before(how, dim, size, operands)
    parts, before = shared[key]
    shape = parts[0].shape
    within = [scanned_p.bind(*parts, **{**how, "axis": dim + 1, "output": n}) for n in range(len(parts))]
    spread = [lax.broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != dim + 1]) for x in before]
    alone = lax.eq(lax.broadcasted_iota(np.int32, shape, dim), np.int32(chunks - 1 if reverse else 0))
    both = lax.select(alone, within[output], combined(combine, spread, within)[output])
    flat = lax.reshape(both, (*shape[:dim], chunks * size, *shape[dim + 2 :]))
    result = lax.slice_in_dim(flat, 0, length, axis=dim) if chunks * size > length else flat
    return boundary_p.bind(chunked_p.bind(result, dim=dim, size=size), dim=dim) if apart else result


def _chunks_and_before(
    how: Mapping[str, object], dim: int, size: int, operands: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    length, reverse = operands[0].shape[dim], how["reverse"]
    chunks = -(-length // size)

    def padded(x: Array, low: int, high: int) -> Array:
        beyond = [(low, high, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)]
        return lax.pad(x, jnp.zeros((), x.dtype), beyond) if low or high else x

    wholes = [padded(x, 0, chunks * size - length) for x in operands]
    parts = [lax.reshape(x, (*x.shape[:dim], chunks, size, *x.shape[dim + 1 :])) for x in wholes]
    last = 0 if reverse else size - 1
    within = [scanned_p.bind(*parts, **{**how, "axis": dim + 1, "output": n}) for n in range(len(parts))]
    totals = [boundary_p.bind(lax.index_in_dim(x, last, dim + 1, keepdims=False), dim=dim) for x in within]
    running = [scanned_p.bind(*totals, **{**how, "axis": dim, "output": n}) for n in range(len(parts))]
    shifted = [padded(x, -1, 1) if reverse else padded(x, 1, -1) for x in running]
    return parts, [boundary_p.bind(x, dim=dim) for x in shifted]


def _log_of_sum(x: Array, axis: int) -> Array:
    top = lax.reduce_max(x, (axis,))
    shift = lax.select(lax.is_finite(top), top, lax.full_like(top, 0))
    apart = lax.broadcast_in_dim(shift, x.shape, [d for d in range(x.ndim) if d != axis])
    return lax.add(lax.log(lax.reduce_sum(lax.exp(lax.sub(x, apart)), (axis,))), shift)


def _log_of_two(a: Array, b: Array) -> Array:
    apart = lax.sub(a, b)
    found = lax.add(lax.max(a, b), lax.log1p(lax.exp(lax.neg(lax.abs(apart)))))
    return lax.select(lax.eq(apart, apart), found, lax.add(a, b))


_TOTAL: Mapping[str, Callable[[Array, int], Array]] = {
    "cumsum": lambda x, axis: lax.reduce_sum(x, (axis,)),
    "cumprod": lambda x, axis: lax.reduce_prod(x, (axis,)),
    "cummax": lambda x, axis: lax.reduce_max(x, (axis,)),
    "cummin": lambda x, axis: lax.reduce_min(x, (axis,)),
    "cumlogsumexp": _log_of_sum,
}
_COMBINE: Mapping[str, Callable[[Array, Array], Array]] = {
    "cumsum": lax.add,
    "cumprod": lax.mul,
    "cummax": lax.max,
    "cummin": lax.min,
    "cumlogsumexp": _log_of_two,
}
