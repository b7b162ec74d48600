"""Equations that nobody reads → nothing."""

from __future__ import annotations

import jax.extend.core as jex
from jax.interpreters import partial_eval as pe

from jaxpr2triton._compat import close_like
from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Atom, Closed, Jaxpr, Var, equations, made


def remove_dead(closed: Closed) -> Closed:
    """Keep what leads to an output or has an effect.

        { lambda ; a. let b = sin a;  c = cos a in (c,) }   →   { lambda ; a. let c = cos a in (c,) }

    Left alone: the inputs, even those that nobody reads.
    """
    wanted = {atom for atom in closed.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    live = []
    for eqn in reversed(closed.jaxpr.eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            live.append(eqn)
            wanted.update([atom for atom in eqn.invars if not isinstance(atom, jex.Literal)])
    if len(live) == len(closed.jaxpr.eqns):
        return closed
    if not any(any(True for _ in jex.jaxprs_in_params(eqn.params)) for eqn in live):
        return build.with_equations(closed, live[::-1])
    return live_part(closed)


def live_part(closed: Closed) -> Closed:
    """The same without what is dead in the bodies of loops, too: what no step needs, and what is carried for nobody."""
    every = [True] * len(closed.out_avals)
    inner, _ = pe.dce_jaxpr(closed.jaxpr, every, instantiate=True)  # type: ignore[arg-type]  # our protocol is JAX's class
    live = made(close_like(closed, inner))
    return closed if _names(live.jaxpr) == _names(closed.jaxpr) else live


def _names(jaxpr: Jaxpr) -> list[tuple[list[Atom], list[Var]]]:
    """What all equations read and make: by that a program differs from one that has less."""
    return [(eqn.invars, eqn.outvars) for eqn in equations(jaxpr)]
