"""Functions → closed jaxprs."""

from __future__ import annotations

from jaxpr2triton.ir.hoisting import hoist
from jaxpr2triton.trace.flat import jaxpr_function, trace_flat

__all__ = ["hoist", "jaxpr_function", "trace_flat"]
