"""Bugs that are known and not mended yet: programs that may meet them are not drawn."""

from __future__ import annotations

from collections.abc import Callable

from tests.drawn.program import Program


def _low_precision_gradient(program: Program) -> bool:
    """16-bit values are recomputed without the rounding that the stored ones had."""
    return program.transform not in ("plain", "vmap") and "float16" in str(program)


KNOWN: tuple[Callable[[Program], bool], ...] = (_low_precision_gradient,)


def is_known(program: Program) -> bool:
    return any(meets(program) for meets in KNOWN)
