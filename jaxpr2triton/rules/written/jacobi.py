"""Eigenvalues of small symmetric matrices, by rotations until nothing is left beside the diagonal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.rules.written.tiles import along

Array = jax.Array


def eigh(matrix: Array, *, lower: bool, **how: Any) -> tuple[Array, Array]:
    """Vectors and values, ascending. The half that is not read is the mirror image of the other one.

    In a round, each coordinate turns with one other one; after a sweep of rounds, each has turned with all others.
    """
    size = matrix.shape[-1]
    kept = along(matrix.shape, -2) >= along(matrix.shape, -1)
    matrix = lax.select(kept if lower else ~kept, matrix, jnp.swapaxes(matrix, -1, -2))
    vectors = lax.convert_element_type(along(matrix.shape, -2) == along(matrix.shape, -1), matrix.dtype)
    largest = lax.reduce_max(lax.abs(matrix), (matrix.ndim - 2, matrix.ndim - 1))
    if size > 1:
        rounds = size - 1 + size % 2
        sweeps = (
            policy.COMMON.sweeps * (3 if matrix.dtype == np.float64 else 2) // 2
        )  # more digits take half as many more

        def turn(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            return _turned(*state, lax.rem(lax.convert_element_type(number, np.int32), np.int32(rounds)))

        matrix, vectors = lax.fori_loop(0, sweeps * rounds, turn, (matrix, vectors))
    values = _diagonal(matrix)
    return _ascending(values, vectors, largest)


def _partners(size: int, number: Array) -> Array:
    """With whom each one turns in a round: nobody twice in a sweep; one that is left over with itself."""
    circle = np.int32(size - 1 + size % 2)
    each = lax.iota(np.int32, size)
    other = lax.rem(number - each + circle, circle)
    if size % 2:
        return other
    alone = lax.rem(number * np.int32(size // 2), circle)  # its partner on the circle would be itself
    other = jnp.where(other == each, circle, other)
    return jnp.where(each == circle, alone, other)


def _turned(matrix: Array, vectors: Array, number: Array) -> tuple[Array, Array]:
    """The matrix and the vectors after a round."""
    partner = _partners(matrix.shape[-1], number)
    here = partner[:, None] == lax.iota(np.int32, partner.shape[0])  # each beside its partner

    own = _diagonal(matrix)
    other = jnp.where(here, own[..., None, :], 0).sum(-1)
    beside = jnp.where(here, matrix + jnp.swapaxes(matrix, -1, -2), 0).sum(-1)  # both turn by one angle
    cosine, sine = _rotation(own, other, beside, partner)
    matrix = _mixed(matrix, partner, cosine, sine)
    down = jnp.take(matrix, partner, axis=-2, mode="clip")
    matrix = cosine[..., :, None] * matrix - sine[..., :, None] * down
    return matrix, _mixed(vectors, partner, cosine, sine)


def _rotation(own: Array, other: Array, beside: Array, partner: Array) -> tuple[Array, Array]:
    """The angle after which nothing is left beside the diagonal, at most an eighth of a turn."""
    each = lax.iota(np.int32, partner.shape[0])
    nothing = (beside == 0) | (each == partner)
    slope = (other - own) / jnp.where(nothing, 1, beside)
    sign = jnp.where((slope > 0) | ((slope == 0) & (each < partner)), 1, -1)
    tangent = jnp.where(nothing, 0, sign / (lax.abs(slope) + lax.sqrt(slope * slope + 1)))
    cosine = lax.rsqrt(tangent * tangent + 1)
    return cosine, tangent * cosine


def _mixed(matrix: Array, partner: Array, cosine: Array, sine: Array) -> Array:
    """Each column, turned with its partner."""
    across = jnp.take(matrix, partner, axis=-1, mode="clip")
    return cosine[..., None, :] * matrix - sine[..., None, :] * across


def _diagonal(matrix: Array) -> Array:
    here = along(matrix.shape, -2) == along(matrix.shape, -1)
    return lax.reduce_sum(lax.select(here, matrix, lax.full_like(matrix, 0)), (matrix.ndim - 2,))


def _ascending(values: Array, vectors: Array, largest: Array) -> tuple[Array, Array]:
    """In the order of the values; NaN if the matrix had one, or an infinity."""
    size = values.shape[-1]
    place = lax.iota(np.int32, size)
    less = (values[..., None, :] < values[..., :, None]) | (
        (values[..., None, :] == values[..., :, None]) & (place[None, :] < place[:, None])
    )
    rank = lax.reduce_sum(lax.convert_element_type(less, np.int32), (less.ndim - 1,))
    goes = rank[..., :, None] == place  # from, to
    both = lax.concatenate([vectors, values[..., None, :]], vectors.ndim - 2)
    both = jnp.where(goes[..., None, :, :], both[..., :, :, None], 0).sum(-2)
    both = jnp.where((largest < np.inf)[..., None, None], both, np.nan)
    return both[..., :size, :], both[..., size, :]


TABLE: Mapping[str, Callable[..., Any]] = {"eigh": eigh}  # what is written as a loop
