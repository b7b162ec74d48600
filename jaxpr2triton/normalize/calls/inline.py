"""Calls → the equations that they call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxpr2triton._compat import called_jaxpr, operands_of_call
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, rewrite


def inline_calls(closed: Closed) -> Closed:
    """Write out the jaxprs of calls, and of the calls in them.

        b = jit[jaxpr={ lambda ; c. let d = sin c in (d,) }] a   →   b = sin a

    Calls are `jit`, `checkpoint`, `custom_jvp_call`, `custom_vjp_call` and what else only runs its jaxpr: programs
    come here after differentiation, so a `custom_linear_solve` only solves. Left alone: the bodies of `scan`, `while`
    and `cond`, a `jit` that asks for shardings or compiler options, and calls that hold arrays (`hoist` makes
    operands of those that it may).
    """
    return rewrite(closed, inline_call, lambda eqn: called_jaxpr(eqn.primitive.name, eqn.params) is not None)


def inline_call(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """The rule, for passes that trace JAX functions and meet calls in them."""
    called = called_jaxpr(node.name, node.params)
    if called is None:
        return None
    jaxpr, consts = called
    args = operands_of_call(node.name, node.params, node.args)
    known = [constant(const) for const in consts]
    if any(value is None for value in known) or _holds_arrays(jaxpr):
        return None
    return rewriter.evaluate(jaxpr, [value[()] for value in known if value is not None], args)


def _holds_arrays(jaxpr: Any) -> bool:
    """True if a call in this jaxpr has constants that are not scalars."""
    calls = [called_jaxpr(eqn.primitive.name, eqn.params) for eqn in jaxpr.eqns]
    return any(
        any(constant(const) is None for const in consts) or _holds_arrays(inner)
        for inner, consts in (call for call in calls if call is not None)
    )
