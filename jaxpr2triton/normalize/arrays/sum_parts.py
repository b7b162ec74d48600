"""Sums of arrays that were joined → joined sums of the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite


def sum_pieces(closed: Closed) -> Closed:
    """Let every piece be summed for itself, so that it need not be found in the whole.

    g = concatenate[dimension=1] a b;  s = reduce_sum[axes=(0,)] g
        →    p = reduce_sum[axes=(0,)] a;  q = reduce_sum[axes=(0,)] b;  s = concatenate[dimension=0] p q

    Left alone: sums over the dimension along which the pieces are joined.
    """
    if not {"concatenate", "reduce_sum"} <= primitive_names(closed):
        return closed
    return rewrite(closed, _apart, named({"reduce_sum"}))


def _apart(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    joined = rewriter.maker(node.args[0])
    if joined is None or joined.name != "concatenate":
        return None
    axes, along = node.params["axes"], joined.params["dimension"]
    if along in axes:
        return None
    sums = [rewriter.write(node, piece) for piece in joined.args]
    dimension = along - sum(axis < along for axis in axes)
    return [rewriter.bind(primitives.concatenate_p, *sums, dimension=dimension)]


def padded_parts(eqn: Any) -> list[Any]:
    """For each operand of a concatenation, the equation that puts it into its place among zeros."""
    dimension, whole = eqn.params["dimension"], eqn.outvars[0].aval
    equations, start = [], 0
    for piece in eqn.invars:
        size = piece.aval.shape[dimension]
        edges = [(0, 0, 0)] * len(whole.shape)
        edges[dimension] = (start, whole.shape[dimension] - start - size, 0)
        made = jax.make_jaxpr(lambda x, edges=tuple(edges): lax.pad(x, x.dtype.type(0), edges))(piece.aval)
        equations += made.jaxpr.eqns
        start += size
    return equations
