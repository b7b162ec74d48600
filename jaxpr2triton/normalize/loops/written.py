"""Primitives that are loops of others → these loops."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from jaxpr2triton._compat import CALLS
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite
from jaxpr2triton.rules.written import jacobi, linalg


def write_loops(closed: Closed) -> Closed:
    """Put the loops of `rules/written/` in the place of their primitives.

        v, w = eigh a   →   d, v = scan[length=56 jaxpr=rotations] a identity;  w = the diagonal of d, sorted

    It comes before all that looks into loops. Left alone: dtypes of no kernel, large matrices.
    """
    names = jacobi.TABLE.keys()
    return rewrite(closed, _written, named(names | CALLS)) if primitive_names(closed) & names else closed


def _written(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name not in jacobi.TABLE:
        return inline_call(node, rewriter)
    avals = [jax.typeof(arg) for arg in node.args]
    if linalg.why_not(node.name, [aval.shape for aval in avals], avals[0].dtype, node.params) is not None:
        return None
    return rewriter.expand(jacobi.TABLE[node.name], node.args, **node.params)
