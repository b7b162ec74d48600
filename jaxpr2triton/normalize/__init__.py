"""Closed jaxpr → core jaxpr."""

from __future__ import annotations

from jaxpr2triton.normalize.passes import PASSES, normalize

__all__ = ["PASSES", "normalize"]
