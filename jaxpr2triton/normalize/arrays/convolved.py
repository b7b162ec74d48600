"""Convolutions → contractions of windows."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpr2triton._compat import CALLS
from jaxpr2triton.ir.jaxprs import Closed, Jaxpr, jaxprs_in
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.numbers.decompose import convolved
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite
from jaxpr2triton.rules.written.convolutions import CONVOLUTION


def write_convolutions(closed: Closed) -> Closed:
    """Windows are only places, and what is left is a contraction; of few terms, their products and sums.

        y = conv_general_dilated x w   →   y = dot_general (windowed (pad x 0.0)) w

    For programs whose contractions are kernels, and for what loops run. Left alone: dtypes of no kernel.
    """
    return rewrite(closed, _write, named({CONVOLUTION, *CALLS})) if _holds(closed.jaxpr) else closed


def _holds(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive.name == CONVOLUTION or any(map(_holds, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


def _write(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    return convolved(node, rewriter) if node.name == CONVOLUTION else inline_call(node, rewriter)
