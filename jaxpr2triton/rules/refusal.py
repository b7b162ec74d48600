"""Loops that no kernel can hold: how they are known, and why they were refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from jaxpr2triton.errors import LoopsRefused, PlannedAgain
from jaxpr2triton.rules.scans import LOOPS


class _All:
    def __contains__(self, body: object) -> bool:
        return True


ALL = _All()  # every loop is refused


def body_of(eqn: Any) -> int:
    """What a loop's equation is known by: its body stays the same object when the program around is traced again."""
    return id(eqn.params["jaxpr"])


def no_kernel_because(problem: Exception) -> str:
    first = str(problem).splitlines()[0] if str(problem) else "no message"
    return f"no kernel could be made of it ({type(problem).__name__}: {first})"


@contextlib.contextmanager
def refusing_loops(eqns: Sequence[Any], passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """If anything goes wrong here, the loops among these equations are to blame, and stay with XLA."""
    try:
        yield
    except Exception as problem:  # a mistake of ours, of any sort: XLA runs the loop, and the report says what it was
        if isinstance(problem, (PlannedAgain, *passing)):
            raise
        loops = {body_of(eqn): no_kernel_because(problem) for eqn in eqns if eqn.primitive.name in LOOPS}
        if not loops:
            raise
        raise LoopsRefused(loops) from problem
