"""Compiles ordinary JAX functions, gradients included, into single Triton kernels."""

from __future__ import annotations

from jaxpr2triton.api import Fused, GradProgram, Kernel, Leftover, Program, Residual, __version__, fuse, transpile
from jaxpr2triton.errors import (
    BackendError,
    BugWarning,
    CacheWarning,
    CompilerBug,
    Jaxpr2TritonError,
    KernelFallback,
    KernelRefused,
    NotFusible,
    ScheduleWarning,
    UserError,
)

__all__ = [
    "BackendError",
    "BugWarning",
    "CacheWarning",
    "CompilerBug",
    "Fused",
    "GradProgram",
    "Jaxpr2TritonError",
    "Kernel",
    "KernelFallback",
    "KernelRefused",
    "Leftover",
    "NotFusible",
    "Program",
    "Residual",
    "ScheduleWarning",
    "UserError",
    "__version__",
    "fuse",
    "transpile",
]
