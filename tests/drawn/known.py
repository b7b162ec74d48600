"""Bugs that are known and not mended, ours or XLA's: programs that may meet them are not drawn."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.drawn.program import Program


def divides_by_itself(program: Program) -> bool:
    """Newer versions of XLA take `x / x` for 1 where x is the whole number 0, of which all others make -1."""
    return re.search(r"lax\.div\((\w+), \1\)", str(program)) is not None


KNOWN: tuple[Callable[[Program], bool], ...] = (divides_by_itself,)


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
