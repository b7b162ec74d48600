"""Bugs that are known and not mended, ours or XLA's: programs that may meet them are not drawn."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.drawn.program import Program


def divides_by_itself(program: Program) -> bool:
    """Newer versions of XLA take `x / x` for 1 where x is the whole number 0, of which all others make -1."""
    return re.search(r"lax\.div\((\w+), \1\)", str(program)) is not None


def differentiates_large_windows(program: Program) -> bool:
    """XLA's CPU compiler ends the process: `bad_alloc`, for the tangent alone of the maximum of 1,000 elements."""
    large = re.search(r"lax\.(max|min), \((\d+, )*\d{3,}", str(program))
    return program.transform not in ("plain", "vmap") and large is not None


KNOWN: tuple[Callable[[Program], bool], ...] = (divides_by_itself, differentiates_large_windows)


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
