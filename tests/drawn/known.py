"""Bugs that are known and not mended yet: programs that may meet them are not drawn."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.program import Program


def _nextafter_of_one_and_many(program: Program) -> bool:
    return "nextafter" in str(program) and "vmap" in program.transform


KNOWN: tuple[Callable[[Program], bool], ...] = (_nextafter_of_one_and_many,)


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
