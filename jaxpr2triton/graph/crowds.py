"""What a trial walk through the body of a loop has found wanted at many places (`graph/crowded.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxpr2triton import policy
from jaxpr2triton.ir.jaxprs import Var


@dataclass
class Crowds:
    """What a trial has found so far."""

    dims: dict[Var, tuple[int, ...]] = field(default_factory=dict)  # what might be kept, and along which dimensions
    times: dict[Var, float] = field(default_factory=dict)  # how often values would be computed if nothing were kept

    @property
    def are_large(self) -> bool:
        """Whether a step would do anything so often that it takes less time to keep it all."""
        return any(self.times[var] > policy.COMMON.times_in_a_step for var in self.dims)
