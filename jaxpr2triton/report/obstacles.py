"""What keeps a loop out of kernels: every equation of its body that no kernel can hold, not the first one only."""

from __future__ import annotations

from typing import Any

from jaxpr2triton._compat import user_frame
from jaxpr2triton.graph.covered import all_in_the_way
from jaxpr2triton.ir.kernel import Obstacle
from jaxpr2triton.ir.scans import LOOPS


def obstacles_of(eqn: Any) -> tuple[Obstacle, ...]:
    """Those of a loop, those of the loops in it included; none for other equations."""
    if eqn.primitive.name not in LOOPS:
        return ()
    return tuple(
        Obstacle(inner.primitive.name, str(user_frame(inner) or ""), refusal.reason, refusal.takes)
        for inner, refusal in all_in_the_way(eqn)
    )
