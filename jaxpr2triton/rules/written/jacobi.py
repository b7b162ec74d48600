"""Eigenvalues of small symmetric matrices, by rotations until nothing is left beside the diagonal; singular values.

The signs of vectors are free, and each of XLA's libraries has others: ours are what the rotations end with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.rules.written.orthogonal import qr
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
        matrix, vectors = _rounds(size, matrix.dtype, _turned, (matrix, vectors))
    values = _diagonal(matrix)
    return _ascending(values, vectors, largest)


def svd(matrix: Array, *, full_matrices: bool, compute_uv: bool, **how: Any) -> tuple[Array, ...]:
    """Values, descending; then the vectors on the left, and on the right as rows.

    Columns turn with each other until they are orthogonal. A factorisation into reflections then has their lengths as
    its diagonal; its orthogonal part is right for columns of no length, and beyond the last one, as well.
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        found = svd(jnp.swapaxes(matrix, -1, -2), full_matrices=full_matrices, compute_uv=compute_uv)
        return found if len(found) == 1 else (found[0], *(jnp.swapaxes(each, -1, -2) for each in found[:0:-1]))
    size = matrix.shape[-1]
    largest = lax.reduce_max(lax.abs(matrix), (matrix.ndim - 2, matrix.ndim - 1))
    scale = jnp.where((largest > 0) & (largest < np.inf), largest, 1)[..., None, None]
    square = (*matrix.shape[:-2], size, size)
    vectors = lax.convert_element_type(along(square, -2) == along(square, -1), matrix.dtype)
    columns = matrix / scale
    if size > 1:
        columns, vectors = _rounds(size, matrix.dtype, _orthogonalised, (columns, vectors))
    sizes = lax.reduce_sum(columns * columns, (columns.ndim - 2,))
    both = _ordered(-sizes, lax.concatenate([columns, vectors], columns.ndim - 2))
    left, right = both[..., : matrix.shape[-2], :], both[..., matrix.shape[-2] :, :]
    orthogonal, rest = qr(left, full_matrices=full_matrices)
    lengths = _diagonal(rest[..., :size, :])
    known = (largest < np.inf)[..., None]  # NaN if the matrix had one, or an infinity
    values = jnp.where(known, lax.abs(lengths) * scale[..., 0], np.nan)
    if not compute_uv:
        return (values,)
    signs = jnp.where(lengths < 0, -1, 1).astype(matrix.dtype)
    beyond = [(0, 0, 0)] * (signs.ndim - 1) + [(0, orthogonal.shape[-1] - size, 0)]
    left = orthogonal * lax.pad(signs, jnp.ones((), signs.dtype), beyond)[..., None, :]
    right = jnp.swapaxes(right, -1, -2)
    return values, *(jnp.where(known[..., None], each, np.nan) for each in (left, right))


Turn = Callable[[Array, Array, Array], tuple[Array, Array]]


def _rounds(size: int, dtype: Any, turned: Turn, state: tuple[Array, Array]) -> tuple[Array, Array]:
    """Each with each other one, and that some times."""
    rounds = size - 1 + size % 2
    sweeps = policy.COMMON.sweeps * (3 if dtype == np.float64 else 2) // 2  # more digits take half as many more

    def turn(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return turned(*state, lax.rem(lax.convert_element_type(number, np.int32), np.int32(rounds)))

    found: tuple[Array, Array] = lax.fori_loop(0, sweeps * rounds, turn, state)
    return found


def _orthogonalised(columns: Array, vectors: Array, number: Array) -> tuple[Array, Array]:
    """The columns and the vectors after a round, which does what `_turned` would to the products of the columns."""
    partner = _partners(columns.shape[-1], number)
    across = jnp.take(columns, partner, axis=-1, mode="clip")
    own, other, beside = (
        lax.reduce_sum(x * y, (columns.ndim - 2,))
        for x, y in ((columns, columns), (across, across), (columns, across + across))
    )
    cosine, sine = _rotation(own, other, beside, partner)
    return _mixed(columns, partner, cosine, sine), _mixed(vectors, partner, cosine, sine)


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
    both = _ordered(values, lax.concatenate([vectors, values[..., None, :]], vectors.ndim - 2))
    both = jnp.where((largest < np.inf)[..., None, None], both, np.nan)
    return both[..., :size, :], both[..., size, :]


def _ordered(values: Array, columns: Array) -> Array:
    """Columns in the ascending order of the values."""
    place = lax.iota(np.int32, values.shape[-1])
    less = (values[..., None, :] < values[..., :, None]) | (
        (values[..., None, :] == values[..., :, None]) & (place[None, :] < place[:, None])
    )
    rank = lax.reduce_sum(lax.convert_element_type(less, np.int32), (less.ndim - 1,))
    goes = rank[..., :, None] == place  # from, to
    return jnp.where(goes[..., None, :, :], columns[..., :, :, None], 0).sum(-2)


TABLE: Mapping[str, Callable[..., Any]] = {"eigh": eigh, "svd": svd}  # what is written as a loop
