"""Orthogonal factorisations of small matrices: products of reflections, and rotations until nothing is left to turn.

All functions work on the last two dimensions; leading ones are batches. Signs are those of LAPACK.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpr2triton.rules.written.tiles import along, beside, joined, outer, picked

Array = jax.Array


def qr(matrix: Array, *, full_matrices: bool, **how: Any) -> tuple[Array, Array]:
    """Reflections, multiplied; and what they leave of the matrix."""
    height, width = matrix.shape[-2:]
    reflected, taus = geqrf(matrix)
    more = height - width if full_matrices and height > width else 0
    wide = lax.pad(reflected, jnp.zeros((), matrix.dtype), [(0, 0, 0)] * (matrix.ndim - 1) + [(0, more, 0)])
    columns = min(height, width) + more
    q = householder_product(lax.slice_in_dim(wide, 0, columns, axis=-1), taus)
    rest = lax.slice_in_dim(reflected, 0, columns, axis=-2)
    above = along(rest.shape, -2) <= along(rest.shape, -1)
    return q, lax.select(above, rest, lax.full_like(rest, 0))


def geqrf(matrix: Array) -> tuple[Array, Array]:
    """What is left of the matrix, with the reflections below its diagonal, and their factors.

    The k-th one is I - tau v v^T, where v is 1 at k and nothing above; it turns a column into a multiple of its k-th
    unit vector, of the sign that the column has not. A column that is one already stays as it is.
    """
    column_of = along(matrix.shape, -1)
    taus = []
    for k in range(min(matrix.shape[-2:])):
        column = picked(matrix, -1, k)
        here = along(column.shape, -1)
        top = picked(column, -1, k)
        below = lax.select(here > k, column, lax.full_like(column, 0))
        rest = lax.reduce_max(lax.abs(below), (column.ndim - 1,))
        scale = lax.max(rest, lax.abs(top))  # squares are of numbers up to 1
        unit = lax.select(scale > 0, scale, lax.full_like(scale, 1))
        square = lax.reduce_sum(_square(below / beside(unit, below)), (column.ndim - 1,))
        length = unit * lax.sqrt(square + _square(top / unit))
        moved = rest != 0
        left = lax.select(moved, lax.select(top < 0, length, -length), top)
        divisor = lax.select(moved, left, lax.full_like(left, 1))
        taus.append(lax.select(moved, (left - top) / divisor, lax.full_like(top, 0)))
        slope = below / beside(lax.select(moved, top - left, lax.full_like(top, 1)), below)
        normal = lax.select(here == k, lax.full_like(slope, 1), slope)
        turned = _reflected(matrix, normal, taus[-1])
        stored = lax.select(here == k, beside(left, slope), lax.select(here > k, slope, column))
        beyond = column_of > k
        matrix = lax.select(beyond, turned, lax.select(column_of == k, _in_columns(stored, matrix), matrix))
    return matrix, joined(taus, -1)


def householder_product(matrix: Array, taus: Array) -> Array:
    """The first columns of the product of all reflections, the last one multiplied first."""
    row, column_of = along(matrix.shape, -2), along(matrix.shape, -1)
    product = lax.convert_element_type(row == column_of, matrix.dtype)
    for k in reversed(range(taus.shape[-1])):
        column = picked(matrix, -1, k)
        here = along(column.shape, -1)
        normal = lax.select(here > k, column, lax.convert_element_type(here == k, column.dtype))
        product = _reflected(product, normal, picked(taus, -1, k))
    return product


def _square(x: Array) -> Array:
    return x * x


def _in_columns(column: Array, matrix: Array) -> Array:
    """A column in the place of every column."""
    return lax.broadcast_in_dim(column, matrix.shape, range(column.ndim))


def _reflected(matrix: Array, normal: Array, tau: Array) -> Array:
    """matrix - tau normal (normal^T matrix)."""
    along_normal = lax.reduce_sum(_in_columns(normal, matrix) * matrix, (matrix.ndim - 2,))
    return matrix - outer(normal * beside(tau, normal), along_normal)
