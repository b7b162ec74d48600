"""Calls → the equations that they call."""

from __future__ import annotations

from collections.abc import Sequence

import jax.extend.core as jex

from jaxpr2triton._compat import called_jaxpr
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, rewrite


def inline_calls(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Write out the jaxprs of calls, and of the calls in them.

        b = jit[jaxpr={ lambda ; c. let d = sin c in (d,) }] a   →   b = sin a

    Calls are `jit`, `checkpoint`, `custom_jvp_call`, `custom_vjp_call` and what else only runs its jaxpr: programs
    come here after differentiation. Left alone: the bodies of `scan`, `while` and `cond`, and a `jit` that asks for
    shardings or compiler options.
    """
    if all(called_jaxpr(eqn.primitive.name, eqn.params) is None for eqn in closed.jaxpr.eqns):
        return closed
    return rewrite(closed, inline_call)


def inline_call(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """The rule, for passes that trace JAX functions and meet calls in them."""
    called = called_jaxpr(node.name, node.params)
    return None if called is None else rewriter.evaluate(*called, node.args)
