"""Bodies of loops as core programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, primitive_names, rewrite

Normalize = Callable[[jex.ClosedJaxpr], jex.ClosedJaxpr]


def normalize_bodies(closed: jex.ClosedJaxpr, normalize: Normalize) -> jex.ClosedJaxpr:
    """Normalise what loops run, and write out loops of one step or none.

        c, ys = scan[length=0] body c0 xs   →   c = c0;  ys = broadcast_in_dim 0.0
        c, ys = scan[length=1] body c0 xs   →   c, y = body c0 xs[0];  ys = broadcast_in_dim y
        c, ys = scan[jaxpr=f] c0 xs         →   c, ys = scan[jaxpr=normalize f] c0 xs

    Left alone: loops with effects.
    """
    if "scan" not in primitive_names(closed):
        return closed

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if node.name != "scan" or node.effects:
            return None
        body = node.params["jaxpr"]
        num_consts, num_carry = scan_counts_of(node.params)
        if node.params["length"] == 0:
            ys = [lax.full(aval.shape, 0, aval.dtype) for aval in node.out_avals[num_carry:]]
            return [*node.args[num_consts : num_consts + num_carry], *ys]
        if node.params["length"] == 1:
            firsts = [jnp.squeeze(x, 0) for x in node.args[num_consts + num_carry :]]
            results = rewriter.evaluate(
                body.jaxpr, body.consts, [*node.args[: num_consts + num_carry], *firsts]
            )
            return [*results[:num_carry], *(jnp.expand_dims(y, 0) for y in results[num_carry:])]
        return _again(rewriter, node, normalize(body))

    return rewrite(closed, rule)


def _again(rewriter: Rewriter, node: Node, body: Any) -> list[Value]:
    return rewriter.again(
        Node(node.primitive, {**node.params, "jaxpr": body}, node.args, node.out_avals, node.effects, node.context)
    )
