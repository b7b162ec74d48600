"""Equations that nobody reads → nothing."""

from __future__ import annotations

import jax.extend.core as jex

from jaxpr2triton.normalize.rewrite import Node, Rewriter, rewrite


def remove_dead(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Keep what leads to an output or has an effect.

        { lambda ; a. let b = sin a;  c = cos a in (c,) }   →   { lambda ; a. let c = cos a in (c,) }

    Left alone: the inputs, even those that nobody reads, and the bodies of loops.
    """
    live = {atom for atom in closed.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    wanted = []
    for eqn in reversed(closed.jaxpr.eqns):
        keep = bool(eqn.effects) or any(var in live for var in eqn.outvars)
        wanted.append(keep)
        if keep:
            live.update(atom for atom in eqn.invars if not isinstance(atom, jex.Literal))
    if all(wanted):
        return closed
    upcoming = iter(reversed(wanted))

    def skip(node: Node, rewriter: Rewriter) -> list[None] | None:
        return None if next(upcoming) else [None] * len(node.out_avals)

    return rewrite(closed, skip)
