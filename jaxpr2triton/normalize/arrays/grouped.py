"""Rows in many groups, each multiplied by the matrix of its group → contractions with a gather, and with a mask."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import CALLS
from jaxpr2triton.ir.jaxprs import Closed, Jaxpr, jaxprs_in
from jaxpr2triton.ir.members import member_p
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite

RAGGED = "ragged_dot_general"


def write_grouped(closed: Closed) -> Closed:
    """Let each row find out which group it is in; rows behind the last group are in none.

        c:f32[m,n] = ragged_dot_general a:f32[m,k] b:f32[g,k,n] sizes
            →    c = dot_general (member (select (group == iota) a 0.0)) b             (summed along g and k)
        c:f32[g,k,n] = ragged_dot_general a:f32[m,k] b:f32[m,n] sizes              (its gradient: summed along the rows)
            →    c = dot_general (member (select (start <= iota < end) a 0.0)) b       (for each group)

    That is all groups with a mask, but a program goes only through those that its rows are in (`graph/spans.py`), or
    through the rows of its group. Left alone, and then what JAX makes of it, is what has batch dimensions or a
    `group_offset`, and what loops run.
    """
    if not _holds_groups(closed.jaxpr):
        return closed
    return rewrite(closed, _write, named({RAGGED, *CALLS}))


def _holds_groups(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive.name == RAGGED or any(map(_holds_groups, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


def _write(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name != RAGGED:
        return inline_call(node, rewriter)
    numbers = node.params["ragged_dot_dimension_numbers"]
    (sums, _), (batch, _) = numbers.dot_dimension_numbers
    if batch or node.params["group_offset"] is not None or jnp.ndim(node.args[2]) != 1:
        return None
    (rows,) = numbers.lhs_ragged_dimensions
    how = {"precision": node.params["precision"], "preferred_element_type": node.params["preferred_element_type"]}
    return rewriter.expand(_sums_of_groups if rows in sums else _rows_of_groups, node.args, numbers=numbers, how=how)


def _rows_of_groups(left: Any, right: Any, sizes: Any, *, numbers: Any, how: Any) -> Any:
    (sums, others), _ = numbers.dot_dimension_numbers
    (rows,), (place,) = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    mine = _group(sizes, left.shape[rows]) == lax.broadcasted_iota(np.int32, (sizes.shape[0], left.shape[rows]), 0)
    others = tuple(dim + (dim < place) for dim in others)
    dims = ((0, *(1 + dim for dim in sums)), (0, *others))
    return lax.dot_general(_members(left, mine, rows), jnp.moveaxis(right, place, 0), (dims, ((), ())), **how)


def _sums_of_groups(left: Any, right: Any, sizes: Any, *, numbers: Any, how: Any) -> Any:
    (rows,) = numbers.lhs_ragged_dimensions
    (sums, others), _ = numbers.dot_dimension_numbers
    ends = _ends(sizes)
    row = lax.broadcasted_iota(np.int32, (sizes.shape[0], left.shape[rows]), 1)
    mine = ((ends - sizes.astype(np.int32))[:, None] <= row) & (row < ends[:, None])
    dims = (tuple(1 + dim for dim in sums), others)
    return lax.dot_general(_members(left, mine, rows), right, (dims, ((), ())), **how)


def _ends(sizes: Any) -> Any:
    """Where each group ends."""
    end, group = (lax.broadcasted_iota(np.int32, sizes.shape * 2, dim) for dim in range(2))
    return jnp.sum(jnp.where(group <= end, sizes[None, :], 0), axis=1, dtype=np.int32)


def _group(sizes: Any, count: int) -> Any:
    """The group of each row: how many end before it or there. Of few each program counts that by itself."""
    ends, row = _ends(sizes), lax.iota(np.int32, count)
    if len(sizes) > policy.COMMON.one_by_one:
        return jnp.sum(ends[None, :] <= row[:, None], axis=1, dtype=np.int32)
    return functools.reduce(operator.add, ((end <= row).astype(np.int32) for end in ends))


def _members(left: Any, mine: Any, rows: int) -> Any:
    """The rows once for each group, in which the rows of others are zero, and no terms."""
    mine = jnp.expand_dims(mine, tuple(1 + dim for dim in range(left.ndim) if dim != rows))
    return member_p.bind(jnp.where(mine, left[None], jnp.zeros((), left.dtype)), of=mine.shape[0])
