"""What a loop that is left to XLA costs at least: how often each of its steps has something launched.

XLA runs a loop from the host. It fuses elementwise work and moves, but a product, a sum or a sort is a launch of its
own, and what is around them is at least one more.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jaxpr2triton.ir.kernel import Launches

APART = (
    "arg", "cholesky", "conv_general_dilated", "cum", "custom_call", "dot_general", "eig", "fft", "householder_product",
    "lu", "qr", "reduce", "scatter", "sort", "svd", "top_k", "triangular_solve",
)  # fmt: skip


def launches_of(eqn: Any) -> Launches | None:
    """Of one step, and of all of them where it is known how many there are; None for what is no loop."""
    match eqn.primitive.name:
        case "scan":
            return Launches(_of_step(eqn.params["jaxpr"].jaxpr), eqn.params["length"])
        case "repeat":
            return Launches(_of_step(eqn.params["jaxpr"].jaxpr), None)
        case "while":
            return Launches(_of_step(eqn.params["body_jaxpr"].jaxpr), None)
        case _:
            return None


def _of_step(body: Any) -> int:
    return _apart(body) + 1


def _apart(jaxpr: Any) -> int:
    """Launches of which each needs its own; a loop whose length is not known counts as one step of it."""
    count = 0
    for eqn in jaxpr.eqns:
        inner = launches_of(eqn)
        if inner is not None:
            count += inner.a_step * (1 if inner.steps is None else inner.steps)
        elif eqn.primitive.name == "cond":
            count += min(_apart(branch.jaxpr) for branch in eqn.params["branches"])
        elif eqn.primitive.name.startswith(APART) and eqn.primitive.name != "reduce_precision":
            count += 1
        else:
            count += sum(_apart(body) for body in jex.jaxprs_in_params(eqn.params))
    return count
