"""Where windows are scattered to is not known: every place of the operand looks through all updates of its batch.

Both are laid out in one space, in which an update is the same for all places that look at it, and a place the same for
all updates. What is left of it for each place, a sum or the last one, is its result.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.normalize.arrays.affine_windows import Places
from jaxpr2triton.normalize.rewrite import Value


@dataclass(frozen=True)
class Space:
    """Each place of the operand beside each update that it looks through.

    operand f32[9, 4], 5 windows [2, 4], indexed along dimension 0   →   shape (5, 2, 9, 4):
    5 indices, 2 places in a window, and for each pair the whole operand
    """

    places: Places

    @property
    def opened(self) -> list[int]:
        """The indexed dimensions of the operand along which windows have several places, each an update of its own."""
        return [d for d in self.places.indexed if self.places.window[d] > 1]

    @property
    def searched(self) -> tuple[int, ...]:
        """The dimensions that are looked through; those of the operand come after them."""
        return tuple(range(len(self.places.free) + len(self.opened)))

    @property
    def shape(self) -> tuple[int, ...]:
        lead = (self.places.lead[slot] for slot in self.places.free)
        return (*lead, *(self.places.window[d] for d in self.opened), *self.places.shape)

    def of_operand(self, d: int) -> int:
        """Where a dimension of the operand is."""
        return len(self.searched) + d

    def of_index(self, slot: int) -> int:
        """Where a dimension of the index array is: a batch lies along the operand's."""
        batch = {slot: d for d, slot in self.places.batching.items()}
        return self.of_operand(batch[slot]) if slot in batch else self.places.free.index(slot)

    def of_window(self, d: int) -> int:
        """Where the windows' part of a dimension of the operand is."""
        return len(self.places.free) + self.opened.index(d) if d in self.opened else self.of_operand(d)

    @property
    def cut(self) -> list[int]:
        """The dimensions of the operand, not indexed, of which windows have only the beginning."""
        fixed = {*self.places.indexed, *self.places.batching}
        sizes = zip(self.places.shape, self.places.window)
        return [d for d, (size, window) in enumerate(sizes) if d not in fixed and window < size]


def spread(updates: Value, windows: Sequence[int], space: Space) -> Value:
    """The updates along their dimensions of the space, the same for all places that look at them."""
    offsets, slots = iter(space.places.offsets), iter(range(len(space.places.lead)))
    where = [
        space.of_window(next(offsets)) if d in windows else space.of_index(next(slots))
        for d in range(jnp.ndim(updates))
    ]
    update = lax.transpose(updates, np.argsort(where))

    # Beyond the end of a cut window there is nothing to write; `hit` says so.
    ends = {space.of_operand(d): space.places.shape[d] - space.places.window[d] for d in space.cut}
    update = lax.pad(update, np.zeros((), updates.dtype)[()], [(0, ends.get(at, 0), 0) for at in sorted(where)])
    return lax.broadcast_in_dim(update, space.shape, sorted(where))


def hit(indices: Value, space: Space) -> Value:
    """Where in the space an update is written to the place that looks at it."""
    hits = [*_hits(indices, space), *_inside_windows(space)]
    return functools.reduce(operator.and_, hits) if hits else lax.full(space.shape, True)


def _hits(indices: Value, space: Space) -> list[Value]:
    """Where in the space each component of the index, and the place in the window, are those of the operand."""
    places = space.places
    where = [space.of_index(slot) for slot in range(len(places.lead))]
    dtype = jax.typeof(indices).dtype
    indices = lax.convert_element_type(indices, np.int32) if dtype.itemsize < 4 else indices
    hits = []
    for component, d in enumerate(places.indexed):
        number = lax.index_in_dim(indices, component, len(places.lead), keepdims=False)
        number = lax.broadcast_in_dim(lax.transpose(number, np.argsort(where)), space.shape, sorted(where))
        here = lax.broadcasted_iota(number.dtype, space.shape, space.of_operand(d))
        if places.window[d] > 1:  # a window that is not inside of the array is left out as a whole
            hits += [number >= 0, number <= places.shape[d] - places.window[d]]
            number = number + lax.broadcasted_iota(number.dtype, space.shape, space.of_window(d))
        hits.append(number == here)
    return hits


def _inside_windows(space: Space) -> list[Value]:
    """Where in the space a place is not beyond the end of the windows, along dimensions that are not indexed."""
    return [
        lax.broadcasted_iota(np.int32, space.shape, space.of_operand(d)) < space.places.window[d] for d in space.cut
    ]
