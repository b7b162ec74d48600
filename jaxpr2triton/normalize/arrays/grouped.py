"""Rows in many groups, each multiplied by the matrix of its group → contractions with a gather, and with a mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import CALLS
from jaxpr2triton.ir.jaxprs import Closed, Jaxpr, jaxprs_in
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite

RAGGED = "ragged_dot_general"


def write_grouped(closed: Closed, few: bool = True) -> Closed:
    """Let each row look up the group that it is in; rows behind the last group are in none.

        c:f32[m,n] = ragged_dot_general a:f32[m,k] b:f32[g,k,n] sizes
            →    c = select (group < g) (dot_general a (gather b group)) 0.0        (row by row)
        c:f32[g,k,n] = ragged_dot_general a:f32[m,k] b:f32[m,n] sizes              (its gradient: summed along the rows)
            →    c = dot_general (select (group == iota) a 0.0) b                  (for each group)

    Left alone, and then what JAX makes of it, all groups with a mask: rows of few groups, for a block of them is
    multiplied with all matrices sooner than each row reads its own; what has batch dimensions or a `group_offset`; and
    what loops run. For programs whose contractions are kernels, which gather where they multiply: nothing of the size
    of m·k·n is stored. Where a library has a say it multiplies few groups with a mask, which is `few=False`.
    """
    if not _holds_groups(closed.jaxpr):
        return closed
    return rewrite(closed, partial(_write, few=few), named({RAGGED, *CALLS}))


def _holds_groups(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive.name == RAGGED or any(map(_holds_groups, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


def _write(node: Node, rewriter: Rewriter, few: bool) -> Sequence[Value] | None:
    if node.name != RAGGED:
        return inline_call(node, rewriter)
    numbers = node.params["ragged_dot_dimension_numbers"]
    (sums, _), (batch, _) = numbers.dot_dimension_numbers
    if batch or node.params["group_offset"] is not None or jnp.ndim(node.args[2]) != 1:
        return None
    (rows,) = numbers.lhs_ragged_dimensions
    how = {"precision": node.params["precision"], "preferred_element_type": node.params["preferred_element_type"]}
    are_few = jnp.size(node.args[2]) <= policy.COMMON.groups
    if rows in sums and (few or not are_few):
        return rewriter.expand(_sums_of_groups, node.args, numbers=numbers, how=how)
    if rows in sums or are_few:
        return None
    return rewriter.expand(_rows_of_groups, node.args, numbers=numbers, how=how)


def _groups(sizes: Any, count: int) -> Any:
    """The group of each row: how many groups end before it or there."""
    groups = sizes.shape[0]
    end, group = (lax.broadcasted_iota(np.int32, (groups, groups), dim) for dim in range(2))
    earlier = group <= end
    ends = jnp.sum(jnp.where(earlier, sizes[None, :], 0), axis=1, dtype=np.int32)
    return jnp.sum(ends[None, :] <= lax.broadcasted_iota(np.int32, (count, groups), 0), axis=1, dtype=np.int32)


def _rows_of_groups(left: Any, right: Any, sizes: Any, *, numbers: Any, how: Any) -> Any:
    (sums, others), _ = numbers.dot_dimension_numbers
    (rows,), (place,) = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    group = _groups(sizes, left.shape[rows])
    right = jnp.moveaxis(right, place, 0)
    others = tuple(1 + dim - (dim > place) for dim in others)
    matrices = jnp.take(right, group, axis=0, mode="clip")
    result = lax.dot_general(left, matrices, ((sums, others), ((rows,), (0,))), **how)
    result = jnp.where((group < sizes.shape[0]).reshape(-1, *[1] * (result.ndim - 1)), result, 0)
    return jnp.moveaxis(result, 0, rows - sum(dim < rows for dim in sums))


def _sums_of_groups(left: Any, right: Any, sizes: Any, *, numbers: Any, how: Any) -> Any:
    (rows,) = numbers.lhs_ragged_dimensions
    dims, _ = numbers.dot_dimension_numbers
    group = _groups(sizes, left.shape[rows])
    mine = group == lax.broadcasted_iota(np.int32, (sizes.shape[0], left.shape[rows]), 0)
    mine = jnp.expand_dims(mine, tuple(1 + dim for dim in range(left.ndim) if dim != rows))
    members = jnp.where(mine, left[None], 0)
    return lax.dot_general(members, right, ((tuple(1 + dim for dim in dims[0]), dims[1]), ((), ())), **how)
