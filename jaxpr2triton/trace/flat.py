"""Functions → closed jaxprs without constants: what a function closes over becomes leading operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxpr2triton.ir.hoisting import hoist
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.tracing import trace


def trace_flat(
    fun: Callable[..., Any], arguments: Sequence[Any], names: Sequence[str] = ()
) -> tuple[Closed, list[Any]]:
    """The program of `fun` for these arguments (arrays, tracers, avals or shapes), and what it closes over.

        w, c = array([1., 2.]), array(3.)        { lambda ; c0:f32[2] x:f32[2]. let
        trace_flat(lambda x: x * w + c, [x])  →      a = mul x c0;  b = add a 3.0  in (b,) },  [w]

    The user's lines and names are kept. See `hoist` for what becomes an operand.
    """
    traced, outer = trace(fun, *arguments, names=names)
    return hoist(traced, outer)


def jaxpr_function(closed: Closed) -> Callable[..., list[Any]]:
    """A JAX function that computes the program: flat operands in, a list of outputs out."""

    def run(*operands: Any) -> list[Any]:
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *operands)  # type: ignore[arg-type]

    return run
