"""Gathers at few places that are known and not evenly spaced → what lies together, one piece after the other."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir.numbers import runs_of
from jaxpr2triton.normalize.arrays.affine_windows import Places
from jaxpr2triton.normalize.numbers.static_values import static_array
from jaxpr2triton.normalize.rewrite import Rewriter, Value


def read_in_runs(
    operand: Value, places: Places, indices: Value, offset_dims: Sequence[int], rewriter: Rewriter
) -> Value | None:
    """The result of a gather of whole rows along one dimension.

        b = gather x [[0], [0], [2], [3]]   →   b = concatenate (broadcast x[0]) (slice[2:4] x)

    Left alone: windows of more than one place, indices outside, and more runs than are worth writing down.
    """
    if len(places.indexed) != 1 or places.indexed[0] not in places.dropped or places.batching:
        return None
    array = static_array(indices, rewriter)
    (along,) = places.indexed
    if array is None or array.min() < 0 or array.max() >= places.shape[along]:
        return None
    if any(places.window[d] != places.shape[d] for d in places.offsets):
        return None
    runs = runs_of(array.reshape(-1), policy.COMMON.few)
    if runs is None:
        return None
    pieces = [_piece(operand, along, *run) for run in runs]
    together = pieces[0] if len(pieces) == 1 else lax.concatenate(pieces, along)
    rank = len(places.lead) + len(places.offsets)
    slots = [d for d in range(rank) if d not in offset_dims]
    # the operand's dimensions, the indexed one replaced by those of the index array
    order = {d: place for place, d in zip(offset_dims, places.offsets)}
    spread = jnp.shape(together)[:along] + places.lead + jnp.shape(together)[along + 1 :]
    source = [place for d in range(len(places.shape)) for place in ([order[d]] if d != along else slots)]
    return lax.transpose(lax.reshape(together, spread), [source.index(d) for d in range(rank)])


def _piece(operand: Value, along: int, first: int, step: int, count: int) -> Value:
    """`count` elements from `first` on."""
    if step == 0:
        one = lax.slice_in_dim(operand, first, first + 1, axis=along)
        shape = [count if d == along else size for d, size in enumerate(jnp.shape(one))]
        return lax.broadcast_in_dim(one, shape, range(len(shape)))
    last = first + step * (count - 1)
    low, high = min(first, last), max(first, last)
    piece = lax.slice_in_dim(operand, low, high + 1, abs(step), axis=along)
    return lax.rev(piece, (along,)) if step < 0 else piece
