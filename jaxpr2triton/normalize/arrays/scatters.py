"""Gathers and scatters → index work, selections and sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton import policy
from jaxpr2triton.ir.dtypes import is_float, unsupported
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.arrays.affine_windows import Places, evenly, gathered, read_evenly, scattered, spread_evenly
from jaxpr2triton.normalize.arrays.counted import with_lanes
from jaxpr2triton.normalize.arrays.pulled import Found, alone, last_of
from jaxpr2triton.normalize.arrays.pushed import pushed
from jaxpr2triton.normalize.arrays.runs import read_in_runs
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite, splat
from jaxpr2triton.rules.reductions import TABLE, identity_of
from jaxpr2triton.rules.writes import is_usual


def lower_places(closed: Closed) -> Closed:
    """Read and write at places that are known, and add up what is written at several places that are not.

        b = gather x [[0, 0], [1, 1], [2, 2]]      →   b = slice[0:9:4] (reshape x)
        b = gather x [[0], [0], [2], [3]]          →   b = concatenate (broadcast x[0]) (slice[2:4] x)
        b = gather x [[0, i], [1, j], [2, k]]      →   b = gather[operand_batching_dims=(0,)] x [[i], [j], [k]]
        b = scatter x [[1], [3]] u                 →   b = select_n (pad[interior] true false) x (pad[interior] u)
        b = scatter-add x [[i]] u                  →   b = add x (scatter (broadcast_in_dim -0.0) [[i]] u)
        b = scatter-add x [[i], [j], [k]] u        →   b = add x (reduce_sum (scatter 0.0 [[[i]], [[j]], [[k]]] u))

    Where several updates of a plain `scatter` meet at one place, the last one stays. Left alone: gathers at places that
    are not known, single windows of a plain `scatter` at such places, and what would take too many comparisons.
    """
    return _lower(closed, lambda places: places.count * math.prod(places.shape) <= policy.COMMON.pairs, _left)


def lower_places_inside(closed: Closed) -> Closed:
    """The same for bodies of loops, in which one program makes all the comparisons of a batch, in each step.

    What would take too many is added up in memory, by one program; see `pushed`.
    """
    return _lower(
        closed, lambda places: places.count * places.of_a_batch <= policy.COMMON.scattered_in_a_step, _by_one_program
    )


Affordable = Callable[[Places], bool]
Otherwise = Callable[[Node, Places, Value], Value | None]


def _left(node: Node, places: Places, indices: Value) -> None:
    return None


def _by_one_program(node: Node, places: Places, indices: Value) -> Value | None:
    """In memory, where one program has not too much to add."""
    operand, _, updates = node.args
    found = Found(places, tuple(map(int, node.params["dimension_numbers"].update_window_dims)))
    if places.count * math.prod(found.window[: len(places.indexed)]) > policy.COMMON.worth_a_launch:
        return None
    result = pushed(node.name, found, operand, indices, updates)
    return None if result is None else found.back(result)


def _lower(closed: Closed, affordable: Affordable, otherwise: Otherwise) -> Closed:
    if not primitive_names(closed) & {"gather", *WRITES}:
        return closed
    return rewrite(closed, functools.partial(_lowered, affordable, otherwise), named({"gather", *WRITES}))


def _lowered(affordable: Affordable, otherwise: Otherwise, node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name not in ("gather", *WRITES) or any(unsupported(jax.typeof(arg).dtype) for arg in node.args):
        return None
    if 0 in (jnp.size(arg) for arg in node.args) or node.out_avals[0].size == 0:
        return None
    given = node
    while (lanes := with_lanes(node, _places(node), rewriter)) is not None:
        node = lanes
    result = _read(node, rewriter) if node.name == "gather" else _write(node, rewriter, affordable, otherwise)
    return [result] if result is not None else None if node is given else rewriter.again(node)


def _places(node: Node) -> Places:
    shapes = map(jnp.shape, node.args)
    return gathered(node.params, *shapes) if node.name == "gather" else scattered(node.params, *shapes)


def _read(node: Node, rewriter: Rewriter) -> Value | None:
    operand, indices = node.args
    places = gathered(node.params, jnp.shape(operand), jnp.shape(indices))
    even = evenly(places, indices, rewriter)
    offsets = tuple(map(int, node.params["dimension_numbers"].offset_dims))
    if even is not None:
        return read_evenly(operand, places, even, offsets, node.out_avals[0].shape)
    return read_in_runs(operand, places, indices, offsets, rewriter)


def _write(node: Node, rewriter: Rewriter, affordable: Affordable, otherwise: Otherwise) -> Value | None:
    operand, indices, updates = node.args
    if not is_usual(node.name, node.params):
        return None
    places = scattered(node.params, *map(jnp.shape, node.args))
    even = evenly(places, indices, rewriter)
    windows = tuple(map(int, node.params["dimension_numbers"].update_window_dims))
    combine = WRITES[node.name]
    if even is not None:
        if combine is not None:
            return combine(operand, spread_evenly(updates, places, even, windows, _neutral(node, rewriter)))
        if not even.step:
            starts = [np.int32(start) for start in even.start]
            return lax.dynamic_update_slice(operand, _window(updates, places, windows), starts)
        written = spread_evenly(jnp.ones_like(updates, dtype=bool), places, even, windows, np.bool_(False))
        fill = np.zeros((), updates.dtype)[()]
        return lax.select(written, spread_evenly(updates, places, even, windows, fill), operand)
    if node.params["mode"] == lax.GatherScatterMode.CLIP:
        indices = _clipped(indices, places)
    if places.count == 1:
        return _write_one(node, places, indices, rewriter)
    if affordable(places):
        return _write_several(node, places, indices, rewriter)
    return otherwise(node, places, indices)


def _clipped(indices: Value, places: Places) -> Value:
    parts = []
    for component, d in enumerate(places.indexed):
        part = lax.slice_in_dim(indices, component, component + 1, axis=-1)
        last = min(places.shape[d] - places.window[d], int(jnp.iinfo(part.dtype).max))
        parts.append(lax.clamp(part.dtype.type(0), part, part.dtype.type(last)))
    return lax.concatenate(parts, len(places.lead))


def _window(updates: Value, places: Places, windows: Sequence[int]) -> Value:
    """The one update of each batch as a window of the operand."""
    home = {slot: d for d, slot in places.batching.items()}
    offsets, slots = iter(places.offsets), iter(range(len(places.lead)))
    source = {}
    for d in range(jnp.ndim(updates)):
        if d in windows:
            source[next(offsets)] = d
        elif (slot := next(slots)) in home:
            source[home[slot]] = d
    order = [source[d] for d in sorted(source)]
    order += [d for d in range(jnp.ndim(updates)) if d not in order]
    return lax.reshape(lax.transpose(updates, order), places.window)


def _write_one(node: Node, places: Places, indices: Value, rewriter: Rewriter) -> Value | None:
    """One window for each batch: what is added to the rest is nothing."""
    operand, _, updates = node.args
    combine = WRITES[node.name]
    plain = combine is None and not places.free and indices is node.args[1]
    if plain:
        return None
    numbers = node.params["dimension_numbers"]
    windows = tuple(map(int, numbers.update_window_dims))
    slots = [d for d in range(jnp.ndim(updates)) if d not in windows]
    gone = [slots[free] for free in places.free]
    kept = [d for d in range(jnp.ndim(updates)) if d not in gone]
    rest = [d for d in range(len(places.lead)) if d not in places.free]
    params = {
        **node.params,
        "dimension_numbers": lax.ScatterDimensionNumbers(
            update_window_dims=tuple(kept.index(d) for d in windows),
            inserted_window_dims=numbers.inserted_window_dims,
            scatter_dims_to_operand_dims=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            scatter_indices_batching_dims=tuple(rest.index(d) for d in numbers.scatter_indices_batching_dims),
        ),
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
        "update_jaxpr": None,
        "update_consts": (),
    }
    target = operand if combine is None else lax.full_like(operand, _neutral(node, rewriter))
    index = lax.reshape(indices, (*(places.lead[d] for d in rest), len(places.indexed)))
    update = lax.reshape(updates, [updates.shape[d] for d in kept])
    written = primitives.scatter_p.bind(target, index, update, **params)
    return written if combine is None else combine(operand, written)


def _write_several(node: Node, places: Places, indices: Value, rewriter: Rewriter) -> Value:
    """Every place looks through all updates of its batch."""
    operand, _, updates = node.args
    found = Found(places, tuple(map(int, node.params["dimension_numbers"].update_window_dims)))
    combine = WRITES[node.name]
    if combine is None:

        def greatest(begun: Value, number: Value) -> Value:
            each = found.each(begun.shape, np.int32(-1))
            return lax.reduce_max(alone(each, found.indices(indices), number), range(found.free))

        written = last_of(found, found.operand(operand), greatest, found.updates(updates))
    else:
        dtype = np.dtype(operand.dtype)
        neutral = dtype.type(0) if combine in (lax.add, lax.sub) else _neutral(node, rewriter)
        each = alone(found.each(found.shape, neutral), found.indices(indices), found.updates(updates))
        _, reduced = REDUCTIONS[node.name]
        written = combine(found.operand(operand), reduced(each, range(found.free)))
    return found.back(written)


def _neutral(node: Node, rewriter: Rewriter) -> Any:
    """What leaves every number as it is, -0.0 included."""
    dtype = np.dtype(jax.typeof(node.args[0]).dtype)
    if node.name == "scatter-add" and is_float(dtype):
        filled = splat(node.args[0], rewriter)  # kernels take x + 0.0 for x, so nothing but 0.0 may be added to zeros
        return dtype.type(0.0 if filled is not None and filled == 0 and not np.signbit(filled) else -0.0)
    return dtype.type(identity_of(TABLE[REDUCTIONS[node.name][0]], dtype))


WRITES: Mapping[str, Callable[[Value, Value], Value] | None] = {
    "scatter": None,
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
    "scatter-mul": lax.mul,
    "scatter-min": lax.min,
    "scatter-max": lax.max,
}
REDUCTIONS: Mapping[str, tuple[str, Callable[..., Value]]] = {  # of what meets at one place
    "scatter-add": ("reduce_sum", lax.reduce_sum),
    "scatter-sub": ("reduce_sum", lax.reduce_sum),
    "scatter-mul": ("reduce_prod", lax.reduce_prod),
    "scatter-min": ("reduce_min", lax.reduce_min),
    "scatter-max": ("reduce_max", lax.reduce_max),
}
