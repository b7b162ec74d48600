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
from jaxpr2triton.ir.dtypes import is_float

Array = jax.Array


def _is_small(*arrays: Any) -> bool:
    return max(max(array.shape[-2:]) for array in arrays) <= policy.COMMON.matrix_in_numbers


def _numbers(matrix: Array) -> list[list[Array]]:
    """The elements of matrices, as arrays over the batch."""
    rows, columns = matrix.shape[-2:]
    return [[matrix[..., i, j] for j in range(columns)] for i in range(rows)]


def _matrix(rows: Sequence[Sequence[Array]]) -> Array:
    return _joined([_joined(row, -1) for row in rows], -2)


def _joined(parts: Sequence[Array], axis: int) -> Array:
    """Arrays beside each other along a new axis."""
    place = parts[0].ndim + 1 + axis
    return lax.concatenate([lax.expand_dims(part, (place,)) for part in parts], place)


def _place(shape: Sequence[int], axis: int) -> Array:
    return lax.broadcasted_iota(np.int32, shape, len(shape) + axis)


def _pick(array: Array, axis: int, here: Any) -> Array:
    """The elements at one place along an axis, a number or an array over the batch."""
    chosen = _place(array.shape, axis) == (here if isinstance(here, int) else _beside(here, array))
    return lax.reduce_sum(lax.select(chosen, array, lax.full_like(array, 0)), (array.ndim + axis,))


def _beside(number: Array, array: Array) -> Array:
    """A number for each batch, along the dimensions of an array."""
    return lax.broadcast_in_dim(number, array.shape, range(number.ndim))


def _outer(column: Array, row: Array) -> Array:
    return lax.expand_dims(column, (column.ndim,)) * lax.expand_dims(row, (row.ndim - 1,))


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
    below = _place(matrix.shape, -2) >= _place(matrix.shape, -1)
    rest = lax.select(below, matrix, jnp.swapaxes(matrix, -1, -2))
    columns, oks = [], []
    for k in range(size):
        column, row = _pick(rest, -1, k), _pick(rest, -2, k)
        pivot = _pick(column, -1, k)
        root = lax.sqrt(pivot)
        part = column / _beside(root, column)
        oks.append(pivot > 0)
        columns.append(jnp.where(_place(part.shape, -1) >= k, part, jnp.zeros((), part.dtype)))
        if k < size - 1:
            rest = rest - _outer(part, row / _beside(root, row))
    ok = oks[0]
    for other in oks[1:]:
        ok = ok & other
    factor = _joined(columns, -1)
    return lax.select(_beside(ok, factor) | ~below, factor, lax.full_like(factor, np.nan))


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
    return _matrix(a), _joined(pivots, -1), _joined(order, -1)


def _lu_of_tiles(matrix: Array) -> tuple[Array, Array, Array]:
    height, width = matrix.shape[-2:]
    row_of, column_of = _place(matrix.shape, -2), _place(matrix.shape, -1)
    order = _place(matrix.shape[:-1], -1)
    pivots = []
    for k in range(min(height, width)):
        sizes = lax.abs(_pick(matrix, -1, k))
        sizes = jnp.where(_place(sizes.shape, -1) >= k, sizes, jnp.asarray(-1, sizes.dtype))
        place = lax.argmax(sizes, sizes.ndim - 1, np.int32)
        pivots.append(place)
        top, chosen = _pick(matrix, -2, k), _pick(matrix, -2, place)
        matrix = jnp.where(row_of == _beside(place, matrix), lax.expand_dims(top, (top.ndim - 1,)), matrix)
        matrix = jnp.where(row_of == k, lax.expand_dims(chosen, (chosen.ndim - 1,)), matrix)
        order = _exchanged(order, k, place)
        column = _pick(matrix, -1, k)
        pivot = _beside(_pick(chosen, -1, k), column)
        column = jnp.where(pivot == 0, column, column / pivot)
        less = matrix - _outer(column, chosen)
        changed = jnp.where(column_of == k, lax.expand_dims(column, (column.ndim,)), less)
        matrix = lax.select((row_of > k) & (column_of >= k), changed, matrix)
    return matrix, _joined(pivots, -1), order


def _exchanged(order: Array, one: int, other: Array) -> Array:
    """The array with the elements at two places exchanged."""
    place = _place(order.shape, -1)
    first, second = _pick(order, -1, one), _pick(order, -1, other)
    order = jnp.where(place == _beside(other, order), _beside(first, order), order)
    return jnp.where(place == one, _beside(second, order), order)


def lu_pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    """The identity, with the exchanges made one after the other."""
    if permutation_size > policy.COMMON.matrix_in_numbers:
        order = _place((*pivots.shape[:-1], permutation_size), -1)
        for k in range(pivots.shape[-1]):
            order = _exchanged(order, k, _pick(pivots, -1, k))
        return order
    numbers = [lax.full(pivots.shape[:-1], i, np.int32) for i in range(permutation_size)]
    for k in range(pivots.shape[-1]):
        place, top = pivots[..., k], numbers[k]
        for i in range(permutation_size):
            if i != k:
                here = place == i
                numbers[k], numbers[i] = jnp.where(here, numbers[i], numbers[k]), jnp.where(here, top, numbers[i])
    return _joined(numbers, -1)


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
    return _joined([found[k] for k in range(size)], axis)


def _substituted_numbers(
    a: Array, b: Array, axis: int, turned: bool, order: range, unit_diagonal: bool
) -> dict[int, Array]:
    numbers = _numbers(a)
    found: dict[int, Array] = {}
    for k in order:
        value = lax.index_in_dim(b, k, b.ndim + axis, keepdims=False)
        for j, known in found.items():
            value = value - _beside(numbers[j][k] if turned else numbers[k][j], known) * known
        found[k] = value if unit_diagonal else value / _beside(numbers[k][k], value)
    return found


def _substituted_tiles(
    a: Array, b: Array, axis: int, turned: bool, order: range, unit_diagonal: bool
) -> dict[int, Array]:
    found: dict[int, Array] = {}
    for k in order:
        value = _pick(b, axis, k)
        column = _pick(a, -2 if turned else -1, k)
        found[k] = value if unit_diagonal else value / _beside(_pick(column, -1, k), value)
        b = b - (_outer(column, found[k]) if axis == -2 else _outer(found[k], column))
    return found


TABLE: Mapping[str, Callable[..., Any]] = {
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
}


def why_not(name: str, shapes: Sequence[tuple[int, ...]], dtype: Any, params: Mapping[str, Any]) -> WhyNot | None:
    """Why a call of one of these stays as it is."""
    sizes = shapes[0][-2:] if name != "lu_pivots_to_permutation" else (params["permutation_size"], *shapes[0][-1:])
    if max(sizes) > (most := policy.COMMON.matrix):
        return WhyNot(f"the matrix is larger than {most}x{most}")
    if 0 in (size for shape in shapes for size in shape):
        return WhyNot("the matrix has no elements")
    if not is_float(dtype) and name != "lu_pivots_to_permutation":
        return WhyNot("there is a rule for real numbers only")
    return None
