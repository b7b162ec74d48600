"""What keeps a function with XLA as a whole."""

from __future__ import annotations

from typing import Any

from jaxpr2triton._compat import stay_in_place, user_frame
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.errors import NotFusible
from jaxpr2triton.report.explain import short_type


def side_effects(jaxpr: Any, way_out: str = "leave it to XLA (drop strict=True)") -> NotFusible:
    """An error about the first effect that no equation can have by itself."""
    first = next(eqn for eqn in flatten(jaxpr).jaxpr.eqns if not stay_in_place(eqn.effects))
    frame = user_frame(first)
    return NotFusible(
        f"cannot compile `{first.primitive.name}`: it has side effects, so the whole function stays with XLA",
        where=str(frame) if frame else None,
        hint=f"take the side effect out of the function, or {way_out}",
    )


def symbolic_shape(jaxpr: Any) -> str | None:
    """f32[b,4], the first operand with dimensions of `jax.export.symbolic_shape`."""
    for aval in jaxpr.in_avals:
        if not all(isinstance(size, int) for size in getattr(aval, "shape", ())):
            return short_type(aval)
    return None


def no_numbers(name: str, shape: str) -> NotFusible:
    return NotFusible(
        f"cannot compile {name}: {shape} is a symbolic shape, and kernels are made for numbers, so the whole function "
        "stays with XLA",
        hint="export it for each shape that you need, or leave it to XLA (drop strict=True)",
    )
