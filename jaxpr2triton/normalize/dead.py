"""Equations that nobody reads → nothing."""

from __future__ import annotations

import jax.extend.core as jex
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import close_like


def remove_dead(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Keep what leads to an output or has an effect.

        { lambda ; a. let b = sin a;  c = cos a in (c,) }   →   { lambda ; a. let c = cos a in (c,) }

    Left alone: the inputs, even those that nobody reads.
    """
    live, _ = pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals), instantiate=True)
    return closed if len(live.eqns) == len(closed.jaxpr.eqns) else close_like(closed, live)
