"""What a contraction sums."""

from __future__ import annotations

import math

from jaxpr2triton.ir.jaxprs import Eqn


def terms_of(eqn: Eqn) -> int:
    """How many terms a `dot_general` has for each of its results."""
    (dims, _), _ = eqn.params["dimension_numbers"]
    return math.prod(eqn.invars[0].aval.shape[dim] for dim in dims)
