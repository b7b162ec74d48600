"""Scatters of which the places are not known: every place looks through the updates and takes what belongs to it.

No two programs write at one place, so there are no atomics, and results repeat. Which updates belong to a place is a
condition on a number that the kernel computes, as in a scatter of one window; so each update is written into an array
of its own, which is never there, and what meets at one place is a reduction over these arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton.ir.scans import carried_through
from jaxpr2triton.normalize.arrays.affine_windows import Places
from jaxpr2triton.normalize.rewrite import Value


@dataclass(frozen=True)
class Found:
    """A scatter with its dimensions in one order: those of the updates, batches, indexed ones, and the rest.

    scatter-add f32[9,4] i32[5,1] f32[5,4]   →   [5] | | [9] | [4]:   5 updates, of 1 x 4, for 9 places in rows of 4
    """

    places: Places
    windows: tuple[int, ...]  # the dimensions of the updates that are dimensions of windows

    @property
    def free(self) -> int:
        return len(self.places.free)

    @property
    def batches(self) -> list[int]:
        return sorted(self.places.batching)

    @property
    def order(self) -> list[int]:
        """The operand's dimensions, in our order."""
        fixed = [*self.batches, *sorted(self.places.indexed)]
        return [*fixed, *(d for d in range(len(self.places.shape)) if d not in fixed)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the operand."""
        return tuple(self.places.shape[d] for d in self.order)

    @property
    def window(self) -> tuple[int, ...]:
        """Of one update, without its batches."""
        return tuple(self.places.window[d] for d in self.order[len(self.batches) :])

    @property
    def lead(self) -> tuple[int, ...]:
        """How many updates there are, and batches."""
        return tuple(self.places.lead[slot] for slot in self._slots)

    @property
    def _slots(self) -> list[int]:
        return [*self.places.free, *(self.places.batching[d] for d in self.batches)]

    def each(self, shape: Sequence[int], fill: Any) -> Value:
        """Nothing but `fill`, for each update an array of its own."""
        return lax.full((*self.lead[: self.free], *shape), fill)

    def operand(self, operand: Value) -> Value:
        return lax.transpose(operand, self.order)

    def back(self, result: Value) -> Value:
        return lax.transpose(result, [int(d) for d in np.argsort(self.order)])

    def indices(self, indices: Value) -> Value:
        """The components in the order of the operand's dimensions."""
        parts = [lax.slice_in_dim(indices, at, at + 1, axis=-1) for at in np.argsort(self.places.indexed)]
        return lax.transpose(lax.concatenate(parts, len(self._slots)), [*self._slots, len(self._slots)])

    def updates(self, updates: Value) -> Value:
        slots = [d for d in range(jnp.ndim(updates)) if d not in self.windows]
        along = dict(zip(self.places.offsets, sorted(self.windows)))
        order = [*(slots[slot] for slot in self._slots), *(along[d] for d in self.order if d in along)]
        return lax.reshape(lax.transpose(updates, order), (*self.lead, *self.window))


def alone(target: Value, indices: Value, updates: Value, mode: Any = lax.GatherScatterMode.FILL_OR_DROP) -> Value:
    """One window written for each place along the leading dimensions, which indices and updates have as well.

    f32[5,9,4] i32[5,1] f32[5,1,4]   →   f32[5,9,4]
    """
    lead, indexed = indices.ndim - 1, indices.shape[-1]
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(lead, updates.ndim)),
        inserted_window_dims=(),
        scatter_dims_to_operand_dims=tuple(range(lead, lead + indexed)),
        operand_batching_dims=tuple(range(lead)),
        scatter_indices_batching_dims=tuple(range(lead)),
    )
    return primitives.scatter_p.bind(
        target,
        indices,
        updates,
        dimension_numbers=numbers,
        indices_are_sorted=False,
        unique_indices=True,
        mode=mode,
        update_jaxpr=None,
        update_consts=(),
    )


def one_by_one(
    found: Found, operand: Value, indices: Value, updates: Value, mode: Any, function: Callable[[Value, Value], Value]
) -> Value:
    """The function of old value and update at each place, in the order of the updates.

    scatter[update_jaxpr=f] x [[i], [j], [k]] u   →   scan (c i u → select_n (scatter false [i] true) c (f c u)) x …
    """
    many, lead, indexed = math.prod(found.lead[: found.free]), found.lead[found.free :], indices.shape[-1]
    xs = lax.reshape(indices, (many, *lead, indexed)), lax.reshape(updates, (many, *lead, *found.window))

    def step(old: Value, x: tuple[Value, Value]) -> Value:
        index, update = x
        here = alone(lax.full(old.shape, False), index, lax.full(update.shape, True), mode)
        new = alone(lax.full_like(old, 0), index, update, mode)
        return lax.select(here, function(old, new), old)

    return carried_through(step, operand, xs)


def last_of(found: Found, operand: Value, greatest: Callable[[Value, Value], Value], updates: Value) -> Value:
    """What a plain scatter leaves at each place: the last update that came to it.

    last = greatest -1 iota;   select_n (ge last 0) operand (gather updates last)
    """
    batches, indexed = len(found.batches), len(found.places.indexed)
    places, whole = found.shape[: batches + indexed], found.window[:indexed]
    lead, rest = found.lead, found.window[indexed:]
    counted = [*range(found.free), *range(len(lead), len(lead) + indexed)]  # updates, and places within a window
    number = lax.full((*lead, *whole), 0, np.int32)
    for d in counted:
        number = number * np.int32(number.shape[d]) + lax.broadcasted_iota(np.int32, number.shape, d)
    last = greatest(lax.full(places, np.int32(-1)), number)

    among = range(found.free, len(lead))
    outer = [*among, *counted, *range(len(lead) + indexed, updates.ndim)]
    many = math.prod(number.shape[d] for d in counted)
    numbered = lax.reshape(lax.transpose(updates, outer), (*places[:batches], many, *rest))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(last.ndim, last.ndim + len(rest))),
        collapsed_slice_dims=(batches,),
        start_index_map=(batches,),
        operand_batching_dims=tuple(range(batches)),
        start_indices_batching_dims=tuple(range(batches)),
    )
    sizes = (*(1,) * batches, 1, *rest)
    read = lax.gather(numbered, lax.expand_dims(last, (last.ndim,)), numbers, sizes, mode="clip")
    return lax.select(*_whole_rows(lax.broadcast_in_dim(last >= 0, read.shape, range(last.ndim)), read, operand))


def _whole_rows(written: Value, read: Value, operand: Value) -> tuple[Value, Value, Value]:
    """Beyond the ends of windows that are shorter than rows, nothing is written."""
    beyond = [(0, whole - size, 0) for whole, size in zip(operand.shape, read.shape)]
    if not any(more for _, more, _ in beyond):
        return written, read, operand
    zero = np.zeros((), read.dtype)[()]
    return lax.pad(written, np.bool_(False), beyond), lax.pad(read, zero, beyond), operand
