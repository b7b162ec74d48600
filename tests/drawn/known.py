"""Bugs that are known and not mended yet: programs that may meet them are not drawn."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.program import Program

KNOWN: tuple[Callable[[Program], bool], ...] = ()


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
