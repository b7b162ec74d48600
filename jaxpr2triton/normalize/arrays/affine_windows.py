"""Gathers and scatters at evenly spaced places that are known → slices and pads.

Both are seen in one way: an array of the operand's rank, in which dimensions that are indexed hold what is read or
written there. Where several dimensions are indexed at once, as for a diagonal, they are flattened first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.normalize.numbers.static_values import flat_strides, static_array, steps_of
from jaxpr2triton.normalize.rewrite import Rewriter, Value


@dataclass(frozen=True)
class Places:
    """Windows of an operand: which of its dimensions are indexed, and how index arrays and windows are laid out."""

    shape: tuple[int, ...]  # of the operand
    window: tuple[int, ...]  # the size of the window along each dimension
    indexed: tuple[int, ...]  # the dimension of each component of an index
    dropped: tuple[int, ...]  # dimensions of window size 1 that windows do not have
    batching: dict[int, int]  # dimension of the operand → dimension of the index array
    lead: tuple[int, ...]  # the shape of the index array, without its last dimension

    @property
    def offsets(self) -> tuple[int, ...]:
        """The operand's dimensions that windows have."""
        return tuple(d for d in range(len(self.shape)) if d not in self.dropped and d not in self.batching)

    @property
    def free(self) -> tuple[int, ...]:
        """The dimensions of the index array that are no batch."""
        return tuple(d for d in range(len(self.lead)) if d not in self.batching.values())

    @property
    def count(self) -> int:
        return math.prod(self.lead[d] for d in self.free)

    @property
    def of_a_batch(self) -> int:
        """Elements of the operand."""
        return math.prod(size for d, size in enumerate(self.shape) if d not in self.batching)


def gathered(params: Any, operand: Any, indices: Any) -> Places:
    numbers = params["dimension_numbers"]
    batching = dict(zip(map(int, numbers.operand_batching_dims), map(int, numbers.start_indices_batching_dims)))
    sizes = tuple(map(int, params["slice_sizes"]))
    sizes = tuple(operand[d] if d in batching else size for d, size in enumerate(sizes))
    dropped = tuple(map(int, numbers.collapsed_slice_dims))
    return Places(operand, sizes, tuple(map(int, numbers.start_index_map)), dropped, batching, indices[:-1])


def scattered(params: Any, operand: Any, indices: Any, updates: Any) -> Places:
    numbers = params["dimension_numbers"]
    batching = dict(zip(map(int, numbers.operand_batching_dims), map(int, numbers.scatter_indices_batching_dims)))
    dropped = tuple(map(int, numbers.inserted_window_dims))
    kept = iter(updates[d] for d in sorted(map(int, numbers.update_window_dims)))
    window = tuple(operand[d] if d in batching else 1 if d in dropped else int(next(kept)) for d in range(len(operand)))
    indexed = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    return Places(operand, window, indexed, dropped, batching, indices[:-1])


@dataclass(frozen=True)
class Even:
    """Windows at `start`, `start + step`, … along one dimension, and at one place along all others."""

    shape: tuple[int, ...]  # of the operand, some dimensions flattened
    window: tuple[int, ...]
    start: tuple[int, ...]
    along: int  # the dimension
    step: int  # 0 for a single window
    count: int


def evenly(places: Places, indices: Value, rewriter: Rewriter) -> Even | None:
    """Where the windows are, if that is known and regular."""
    array = static_array(indices, rewriter) if places.count else None
    if array is None:
        return None
    for d in places.batching.values():
        array = np.take(array, [0], axis=d) if (array == np.take(array, [0], axis=d)).all() else None
        if array is None:
            return None
    rows = array.reshape(places.count, len(places.indexed)).astype(np.int64)
    room = [places.shape[d] - places.window[d] + 1 for d in places.indexed]
    found = steps_of(rows, room)
    if found is None:
        return None
    start = dict(zip(places.indexed, map(int, found[0])))
    step = {d: int(s) for d, s in zip(places.indexed, found[1]) if s}
    starts = tuple(start.get(d, 0) for d in range(len(places.shape)))
    if not step:
        return Even(places.shape, places.window, starts, 0, 0, 1)
    first, last = min(step), max(step)
    between = range(first, last + 1)
    if sum(places.lead[d] > 1 for d in places.free) > 1:
        return None
    if any(d not in places.indexed or d not in places.dropped for d in between):
        return None
    strides = flat_strides(places.shape[first : last + 1])
    jump = sum(step.get(d, 0) * int(strides[d - first]) for d in between)
    return (
        Even(
            (*places.shape[:first], math.prod(places.shape[first : last + 1]), *places.shape[last + 1 :]),
            (*places.window[:first], 1, *places.window[last + 1 :]),
            (*starts[:first], sum(starts[d] * int(strides[d - first]) for d in between), *starts[last + 1 :]),
            first,
            jump,
            places.count,
        )
        if jump
        else None
    )


def read_evenly(operand: Value, places: Places, even: Even, offset_dims: Sequence[int], shape: Any) -> Value:
    """The result of a gather."""
    array = lax.reshape(operand, even.shape)
    span = (even.count - 1) * abs(even.step)
    starts = [s - (span if even.step < 0 and d == even.along else 0) for d, s in enumerate(even.start)]
    limits = [s + w + (span if d == even.along else 0) for d, (s, w) in enumerate(zip(starts, even.window))]
    strides = [abs(even.step) if even.step and d == even.along else 1 for d in range(len(starts))]
    array = lax.slice(array, starts, limits, strides)
    array = lax.rev(array, (even.along,)) if even.step < 0 else array
    order, dims = [], iter(places.offsets)
    slots = iter(range(len(places.lead)))
    home = {slot: d for d, slot in places.batching.items()}
    for d in range(len(shape)):
        if d in offset_dims:
            order.append(_moved(next(dims), places, even))
        else:
            slot = next(slots)
            if slot in home:
                order.append(_moved(home[slot], places, even))
            elif even.step and places.lead[slot] > 1:
                order.append(even.along)
    order += [d for d in range(len(even.shape)) if d not in order]
    return lax.reshape(lax.transpose(array, order), shape)


def _moved(d: int, places: Places, even: Even) -> int:
    """Where a dimension of the operand is once some are flattened."""
    flattened = len(places.shape) - len(even.shape)
    return d if d < even.along or not even.step else d - flattened


def spread_evenly(updates: Value, places: Places, even: Even, window_dims: Sequence[int], fill: Value) -> Value:
    """The updates where they belong in an array like the operand, and `fill` everywhere else."""
    home = {slot: d for d, slot in places.batching.items()}
    window, slots = iter(places.offsets), iter(range(len(places.lead)))
    source: dict[int, int] = {}  # dimension of the flattened operand → of the updates
    for d in range(jnp.ndim(updates)):
        if d in window_dims:
            source[_moved(next(window), places, even)] = d
            continue
        slot = next(slots)
        if slot in home:
            source[_moved(home[slot], places, even)] = d
        elif even.step and places.lead[slot] > 1:
            source[even.along] = d
    order = [source[d] for d in sorted(source)]
    order += [d for d in range(jnp.ndim(updates)) if d not in order]
    sizes = [even.count if even.step and d == even.along else w for d, w in enumerate(even.window)]
    array = lax.reshape(lax.transpose(updates, order), sizes)
    array = lax.rev(array, (even.along,)) if even.step < 0 else array
    config = []
    for d, (size, whole) in enumerate(zip(sizes, even.shape)):
        inner = abs(even.step) - 1 if even.step and d == even.along else 0
        low = even.start[d] - ((size - 1) * (inner + 1) if even.step < 0 and d == even.along else 0)
        config.append((low, whole - low - size - (size - 1) * inner, inner))
    return lax.reshape(lax.pad(array, fill, config), places.shape)
