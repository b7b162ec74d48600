"""Programs that JAX compiles with the optimizations that `tests/xla_flags.py` turns off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def optimized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For programs that are to agree in every bit with another one: without them, NaNs and roundings differ."""
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 3})
