"""Primitives that read or write at an index that the program computes.

Like the rows of rules/indexing.py they say in pieces where an element comes from; the index has parts that are numbers
of the kernel (`Dynamic`), brought into range where JAX does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.demands import Demands
from jaxpr2triton.ir.index import ZERO, Condition, Guard, Index, add, constant, scale
from jaxpr2triton.ir.jaxprs import Atom, Eqn
from jaxpr2triton.rules.indexing import Piece
from jaxpr2triton.rules.writes import is_usual

Place = tuple[Index, ...]
FAR = 1 << 30  # beyond most arrays


def _dynamic_slice(demands: Demands, eqn: Eqn, place: Place, guard: Guard) -> tuple[Piece, ...]:
    operand, *starts = eqn.invars
    sizes = zip(operand.aval.shape, eqn.params["slice_sizes"])
    firsts = [_first(demands, start, whole - size, guard) for start, (whole, size) in zip(starts, sizes)]
    return (Piece(0, tuple(add(first, index) for first, index in zip(firsts, place))),)


def _dynamic_update_slice(demands: Demands, eqn: Eqn, place: Place, guard: Guard) -> tuple[Piece, ...]:
    operand, update, *starts = eqn.invars
    sizes = zip(operand.aval.shape, update.aval.shape)
    firsts = [_first(demands, start, whole - size, guard) for start, (whole, size) in zip(starts, sizes)]
    inside = tuple(add(index, scale(first, -1)) for index, first in zip(place, firsts))
    conditions = tuple(Condition(index, 0, size) for index, size in zip(inside, update.aval.shape))
    update_place = tuple(ZERO if size == 1 else index for index, size in zip(inside, update.aval.shape))
    return (Piece(1, update_place, conditions), Piece(0, place))


def _first(demands: Demands, start: Atom, last: int, guard: Guard) -> Index:
    """Where a slice begins; one as long as the whole begins at its beginning."""
    return demands.number(start, (), (0, last), True, guard) if last else ZERO


def _gather(demands: Demands, eqn: Eqn, place: Place, guard: Guard) -> tuple[Piece, ...]:
    operand, indices = eqn.invars
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    batch = [index for d, index in enumerate(place) if d not in numbers.offset_dims]
    offsets = iter([place[d] for d in numbers.offset_dims])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    fill = eqn.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    conditions: list[Condition] = []
    source = []
    for d, whole in enumerate(operand.aval.shape):
        index = ZERO if d in dropped else next(offsets)
        if d in numbers.start_index_map:
            where = (*batch, constant(numbers.start_index_map.index(d)))
            last = whole - sizes[d]
            if fill:
                found = demands.number(indices, where, limits_near(whole), False, guard)
                conditions.append(Condition(found, 0, last + 1))
            index = add(index, demands.number(indices, where, (0, last), True, guard))
        if d in numbers.operand_batching_dims:
            index = batch[numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]]
        source.append(index)
    if not fill:
        return (Piece(0, tuple(source)),)
    return (Piece(0, tuple(source), tuple(conditions)), Piece(-1, ()))


def limits_near(size: int) -> tuple[int, int]:
    """What a number is within that may be beyond an array, on either side; it is asked nothing else."""
    far = max(FAR, size)
    return -far, far


def _scatter(demands: Demands, eqn: Eqn, place: Place, guard: Guard) -> tuple[Piece, ...]:
    """One window for each batch, as `x.at[i].set(v)` writes."""
    operand, indices, updates = eqn.invars
    numbers = eqn.params["dimension_numbers"]
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims))
    batch = {slot: place[d] for d, slot in batching.items()}
    where = tuple(batch[slot] for slot in range(len(indices.aval.shape) - 1))
    windows = [d for d in range(len(place)) if d not in numbers.inserted_window_dims and d not in batching]
    clipped = eqn.params["mode"] == lax.GatherScatterMode.CLIP
    conditions, inside = [], {}
    for d, whole in enumerate(operand.aval.shape):
        if d in batching:
            continue
        size = updates.aval.shape[numbers.update_window_dims[windows.index(d)]] if d in windows else 1
        first: Index = ZERO
        if d in numbers.scatter_dims_to_operand_dims:
            slot = numbers.scatter_dims_to_operand_dims.index(d)
            limits = (0, whole - size) if clipped else limits_near(whole)
            first = demands.number(indices, (*where, constant(slot)), limits, clipped, guard)
            if not clipped and size > 1:  # else a place of the array is the one, or not
                conditions.append(Condition(first, 0, whole - size + 1))
        conditions.append(Condition(add(place[d], scale(first, -1)), 0, size))
        if size > 1 and d in numbers.scatter_dims_to_operand_dims:  # a place near the array, whatever is computed
            first = demands.number(indices, (*where, constant(slot)), (0, whole - size), True, guard)
        inside[d] = add(place[d], scale(first, -1)) if size > 1 else ZERO
    scattered = iter(where)
    update = tuple(
        inside[windows[numbers.update_window_dims.index(d)]] if d in numbers.update_window_dims else next(scattered)
        for d in range(len(updates.aval.shape))
    )
    return (Piece(2, update, tuple(conditions)), Piece(0, place))


def _why_not_scatter(eqn: Eqn) -> WhyNot | None:
    numbers = eqn.params["dimension_numbers"]
    indices = eqn.invars[1].aval.shape
    if not is_usual("scatter", eqn.params):
        return WhyNot(f"it applies a function at more than {policy.COMMON.looked_through} indices that may be alike")
    if len(numbers.scatter_indices_batching_dims) != len(indices) - 1:
        return why_not_several(eqn)
    return _why_not_mode(eqn)


def why_not_several(eqn: Eqn) -> WhyNot | None:
    """Why updates that may meet at one place are left to XLA, once what can be rewritten is."""
    operand, indices, _ = eqn.invars
    batches = eqn.params["dimension_numbers"].scatter_indices_batching_dims
    count = math.prod(size for d, size in enumerate(indices.aval.shape[:-1]) if d not in batches)
    if not is_usual(eqn.primitive.name, eqn.params):
        return WhyNot("it applies a function of its own")
    where = f"each of {operand.aval.size:,} elements would look through {count:,} updates"
    return _why_not_mode(eqn) or WhyNot(f"{where}, which takes longer than XLA")


def _why_not_mode(eqn: Eqn) -> WhyNot | None:
    known = (lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP, lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    if eqn.params["mode"] not in known:
        return WhyNot(f"the mode {eqn.params['mode']} has no rule")
    return None


def fill_value(eqn: Eqn) -> np.generic:
    """What a gather gives for an index outside."""
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    given = eqn.params["fill_value"]
    if given is not None:
        return dtype.type(given)
    if jax.numpy.issubdtype(dtype, jax.numpy.inexact):
        return dtype.type(np.nan)
    if dtype == np.bool_:
        return dtype.type(True)
    limits = jax.numpy.iinfo(dtype)
    return dtype.type(limits.min if limits.min < 0 else limits.max)


Read = Callable[[Demands, Eqn, Place, Guard], tuple[Piece, ...]]

TABLE: dict[str, Read] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}

REFUSALS: dict[str, Callable[[Eqn], WhyNot | None]] = {"gather": _why_not_mode, "scatter": _why_not_scatter}
