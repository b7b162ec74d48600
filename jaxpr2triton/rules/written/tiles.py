"""Tiles of small matrices: a column or row of one is a sum with all others masked, so that it is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

Array = jax.Array


def joined(parts: Sequence[Array], axis: int) -> Array:
    """Arrays beside each other along a new axis."""
    place = parts[0].ndim + 1 + axis
    return lax.concatenate([lax.expand_dims(part, (place,)) for part in parts], place)


def along(shape: Sequence[int], axis: int) -> Array:
    return lax.broadcasted_iota(np.int32, shape, len(shape) + axis)


def picked(array: Array, axis: int, here: Any) -> Array:
    """The elements at one place along an axis, a number or an array over the batch."""
    chosen = along(array.shape, axis) == (here if isinstance(here, int) else beside(here, array))
    return lax.reduce_sum(lax.select(chosen, array, lax.full_like(array, 0)), (array.ndim + axis,))


def beside(number: Array, array: Array) -> Array:
    """A number for each batch, along the dimensions of an array."""
    return lax.broadcast_in_dim(number, array.shape, range(number.ndim))


def outer(column: Array, row: Array) -> Array:
    return lax.expand_dims(column, (column.ndim,)) * lax.expand_dims(row, (row.ndim - 1,))
