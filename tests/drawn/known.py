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


def spreads_what_windows_of_four_dimensions_see(program: Program) -> bool:
    """XLA's CPU leaves out the base dilation there, of large arrays: each of a batch by itself gets other numbers."""
    found = re.findall(r"lax\.reduce_window\(.*?base_dilation=\(([\d, ]+)\)", str(program))
    spread = [each.split(",") for each in found if set(each) - set("1, ")]
    return bool(spread) and ("vmap" in program.transform or any(len(each) > 3 for each in spread))


KNOWN: tuple[Callable[[Program], bool], ...] = (
    divides_by_itself,
    differentiates_large_windows,
    spreads_what_windows_of_four_dimensions_see,
)


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
