"""Contractions over joined values → sums of contractions over the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
from jax import lax

from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, primitive_names, rewrite


def split_contractions(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Let a contraction meet each part of a concatenation by itself.

        z = concatenate[dimension=1] i f g o;  y = dot_general z w      (summed along the joined dimension)
            →    y = dot_general i w[0:8] + dot_general f w[8:16] + ...

    For bodies of loops, where a program would compute every part for each index of the whole: gates have lanes of their
    own then.
    """
    if not {"concatenate", "dot_general"} <= primitive_names(closed):
        return closed
    return rewrite(closed, _split)


def _split(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name != "dot_general":
        return None
    sums, _ = node.params["dimension_numbers"]
    for side, dims in enumerate(sums):
        joined = rewriter.maker(node.args[side])
        if joined is not None and joined.name == "concatenate" and joined.params["dimension"] in dims:
            other = sums[1 - side][dims.index(joined.params["dimension"])]
            return [_sum_of_parts(node, rewriter, joined, side, other)]
    return None


def _sum_of_parts(node: Node, rewriter: Rewriter, joined: Node, side: int, other: int) -> Value:
    """The contraction with each of the joined values in turn; `other` is the dimension that meets the joined one."""
    whole = node.args[1 - side]
    total: Any = None
    start = 0
    for part in joined.args:
        end = start + part.aval.shape[joined.params["dimension"]]
        piece = lax.slice_in_dim(whole, start, end, axis=other)
        operands = (part, piece) if side == 0 else (piece, part)
        product = rewriter.write(node, *operands)
        total = product if total is None else lax.add(total, product)
        start = end
    return total
