"""Factorisations and triangular systems of small matrices, written with primitives that have rules.

Matrices of up to 4x4 are taken apart into numbers: a kernel keeps them in one variable each, and what is known to be
zero is never written. Larger ones, of up to 16x16, stay tiles; a column of a tile is a sum with all others masked,
so that a program computes the tile once and not again for each column that is read.

All functions work on the last dimensions; leading ones are batches. What they write has no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.errors import WhyNot
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.rules.written.orthogonal import geqrf, householder_product, qr
from jaxpr2triton.rules.written.tiles import along, beside, joined, outer, picked

Array = jax.Array


def _is_small(*arrays: Any) -> bool:
    return max(max(array.shape[-2:]) for array in arrays) <= policy.COMMON.coupled


def _numbers(matrix: Array) -> list[list[Array]]:
    """The elements of matrices, as arrays over the batch."""
    rows, columns = matrix.shape[-2:]
    return [[matrix[..., i, j] for j in range(columns)] for i in range(rows)]


def _matrix(rows: Sequence[Sequence[Array]]) -> Array:
    return joined([joined(row, -1) for row in rows], -2)


def _nan_unless(ok: Array, x: Array) -> Array:
    return jnp.where(ok, x, jnp.asarray(np.nan, x.dtype))


# factorisations


def cholesky(matrix: Array) -> Array:
    """Column after column, each subtracted from what is right of it; NaN where a pivot is not positive."""
    return _cholesky_of_numbers(matrix) if _is_small(matrix) else _cholesky_of_tiles(matrix)


def _cholesky_of_numbers(matrix: Array) -> Array:
    a = _numbers(matrix)
    size, zero = len(a), lax.full_like(a[0][0], 0)
    factor = [[zero] * size for _ in range(size)]
    ok = None
    for k in range(size):
        pivot = a[k][k]
        for j in range(k):
            pivot = pivot - factor[k][j] * factor[k][j]
        ok = pivot > 0 if ok is None else ok & (pivot > 0)
        factor[k][k] = lax.sqrt(pivot)
        for i in range(k + 1, size):
            rest = a[i][k]
            for j in range(k):
                rest = rest - factor[i][j] * factor[k][j]
            factor[i][k] = rest / factor[k][k]
    assert ok is not None  # there is a pivot
    return _matrix([[_nan_unless(ok, x) if j <= i else x for j, x in enumerate(row)] for i, row in enumerate(factor)])


def _cholesky_of_tiles(matrix: Array) -> Array:
    """The lower half is read; its mirror image makes rows of columns."""
    size = matrix.shape[-1]
    below = along(matrix.shape, -2) >= along(matrix.shape, -1)
    rest = lax.select(below, matrix, jnp.swapaxes(matrix, -1, -2))
    columns, oks = [], []
    for k in range(size):
        column, row = picked(rest, -1, k), picked(rest, -2, k)
        pivot = picked(column, -1, k)
        root = lax.sqrt(pivot)
        part = column / beside(root, column)
        oks.append(pivot > 0)
        columns.append(jnp.where(along(part.shape, -1) >= k, part, jnp.zeros((), part.dtype)))
        if k < size - 1:
            rest = rest - outer(part, row / beside(root, row))
    ok = oks[0]
    for other in oks[1:]:
        ok = ok & other
    factor = joined(columns, -1)
    return lax.select(beside(ok, factor) | ~below, factor, lax.full_like(factor, np.nan))


def lu(matrix: Array) -> tuple[Array, Array, Array]:
    """Rows are exchanged so that each pivot is the largest of its column; a column of zeros stays as it is."""
    return _lu_of_numbers(matrix) if _is_small(matrix) else _lu_of_tiles(matrix)


def _lu_of_numbers(matrix: Array) -> tuple[Array, Array, Array]:
    a = _numbers(matrix)
    height, width = len(a), len(a[0])
    order = [lax.full(matrix.shape[:-2], i, np.int32) for i in range(height)]
    pivots = []
    for k in range(min(height, width)):
        place, largest = lax.full(matrix.shape[:-2], k, np.int32), lax.abs(a[k][k])
        for i in range(k + 1, height):
            larger = lax.abs(a[i][k]) > largest
            place = jnp.where(larger, np.int32(i), place)
            largest = jnp.where(larger, lax.abs(a[i][k]), largest)
        pivots.append(place)
        first, top = list(a[k]), order[k]
        for i in range(k + 1, height):
            here = place == i
            a[k] = [jnp.where(here, x, y) for x, y in zip(a[i], a[k])]
            a[i] = [jnp.where(here, x, y) for x, y in zip(first, a[i])]
            order[k], order[i] = jnp.where(here, order[i], order[k]), jnp.where(here, top, order[i])
        for i in range(k + 1, height):
            a[i][k] = jnp.where(a[k][k] == 0, a[i][k], a[i][k] / a[k][k])
            for j in range(k + 1, width):
                a[i][j] = a[i][j] - a[i][k] * a[k][j]
    return _matrix(a), joined(pivots, -1), joined(order, -1)


def _lu_of_tiles(matrix: Array) -> tuple[Array, Array, Array]:
    height, width = matrix.shape[-2:]
    row_of, column_of = along(matrix.shape, -2), along(matrix.shape, -1)
    order = along(matrix.shape[:-1], -1)
    pivots = []
    for k in range(min(height, width)):
        sizes = lax.abs(picked(matrix, -1, k))
        sizes = jnp.where(along(sizes.shape, -1) >= k, sizes, jnp.asarray(-1, sizes.dtype))
        place = lax.argmax(sizes, sizes.ndim - 1, np.int32)
        pivots.append(place)
        top, chosen = picked(matrix, -2, k), picked(matrix, -2, place)
        matrix = jnp.where(row_of == beside(place, matrix), lax.expand_dims(top, (top.ndim - 1,)), matrix)
        matrix = jnp.where(row_of == k, lax.expand_dims(chosen, (chosen.ndim - 1,)), matrix)
        order = _exchanged(order, k, place)
        column = picked(matrix, -1, k)
        pivot = beside(picked(chosen, -1, k), column)
        column = jnp.where(pivot == 0, column, column / pivot)
        less = matrix - outer(column, chosen)
        changed = jnp.where(column_of == k, lax.expand_dims(column, (column.ndim,)), less)
        matrix = lax.select((row_of > k) & (column_of >= k), changed, matrix)
    return matrix, joined(pivots, -1), order


def _exchanged(order: Array, one: int, other: Array) -> Array:
    """The array with the elements at two places exchanged."""
    place = along(order.shape, -1)
    first, second = picked(order, -1, one), picked(order, -1, other)
    order = jnp.where(place == beside(other, order), beside(first, order), order)
    return jnp.where(place == one, beside(second, order), order)


def lu_pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    """The identity, with the exchanges made one after the other."""
    if permutation_size > policy.COMMON.coupled:
        order = along((*pivots.shape[:-1], permutation_size), -1)
        for k in range(pivots.shape[-1]):
            order = _exchanged(order, k, picked(pivots, -1, k))
        return order
    numbers = [lax.full(pivots.shape[:-1], i, np.int32) for i in range(permutation_size)]
    for k in range(pivots.shape[-1]):
        place, top = pivots[..., k], numbers[k]
        for i in range(permutation_size):
            if i != k:
                here = place == i
                numbers[k], numbers[i] = jnp.where(here, numbers[i], numbers[k]), jnp.where(here, top, numbers[i])
    return joined(numbers, -1)


# systems


def triangular_solve(
    a: Array, b: Array, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Array:
    """Substitution, from the row with one unknown on. From the right, the same for the transposed matrix."""
    turned = transpose_a == left_side
    size, axis = a.shape[-1], -2 if left_side else -1
    order = range(size) if lower != turned else range(size - 1, -1, -1)
    solve = _substituted_numbers if _is_small(a) else _substituted_tiles
    found = solve(a, b, axis, turned, order, unit_diagonal)
    return joined([found[k] for k in range(size)], axis)


def _substituted_numbers(
    a: Array, b: Array, axis: int, turned: bool, order: range, unit_diagonal: bool
) -> dict[int, Array]:
    numbers = _numbers(a)
    found: dict[int, Array] = {}
    for k in order:
        value = lax.index_in_dim(b, k, b.ndim + axis, keepdims=False)
        for j, known in found.items():
            value = value - beside(numbers[j][k] if turned else numbers[k][j], known) * known
        found[k] = value if unit_diagonal else value / beside(numbers[k][k], value)
    return found


def _substituted_tiles(
    a: Array, b: Array, axis: int, turned: bool, order: range, unit_diagonal: bool
) -> dict[int, Array]:
    found: dict[int, Array] = {}
    for k in order:
        value = picked(b, axis, k)
        column = picked(a, -2 if turned else -1, k)
        found[k] = value if unit_diagonal else value / beside(picked(column, -1, k), value)
        b = b - (outer(column, found[k]) if axis == -2 else outer(found[k], column))
    return found


TABLE: Mapping[str, Callable[..., Any]] = {
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "qr": qr,
    "geqrf": geqrf,
    "householder_product": householder_product,
}


def why_not(name: str, shapes: Sequence[tuple[int, ...]], dtype: Any, params: Mapping[str, Any]) -> WhyNot | None:
    """Why a call of one of these stays as it is."""
    sizes = shapes[0][-2:] if name != "lu_pivots_to_permutation" else (params["permutation_size"], *shapes[0][-1:])
    if max(sizes) > (most := policy.COMMON.small_state):
        return WhyNot(f"the matrix is larger than {most}x{most}")
    if 0 in (size for shape in shapes for size in shape):
        return WhyNot("the matrix has no elements")
    if params.get("pivoting"):
        return WhyNot("it exchanges columns")
    if params.get("subset_by_index"):
        return WhyNot("it wants some eigenvalues only")
    return unsupported(dtype)
