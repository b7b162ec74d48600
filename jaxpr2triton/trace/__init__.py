"""Functions → closed jaxprs."""

from __future__ import annotations

from jaxpr2triton.trace.flat import jaxpr_function, trace_flat

__all__ = ["jaxpr_function", "trace_flat"]
