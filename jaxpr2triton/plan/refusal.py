"""Loops that no kernel can hold: how they are known, and why they were refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxpr2triton.errors import LoopsRefused, PlannedAgain
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.mistakes import mistake_of


class _All:
    def __contains__(self, body: object) -> bool:
        return True


ALL = _All()  # every loop is refused


def body_of(eqn: Any) -> int:
    """What a loop's equation is known by: its body stays the same object when the program around is traced again."""
    return id(eqn.params["jaxpr"])


@contextlib.contextmanager
def refusing_loops(
    eqns: Sequence[Any] | Callable[[], Sequence[Any]], passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """A mistake of ours here costs the loops among these equations: they stay with XLA, and the report says why.

    A function is called for the equations if need be, where it takes time to find them.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, (PlannedAgain, *passing)):
            raise
        found = eqns() if callable(eqns) else eqns
        loops = [eqn for eqn in found if eqn.primitive.name in LOOPS]
        if not loops:
            raise
        mistake = mistake_of(problem, loops)
        raise LoopsRefused({body_of(eqn): mistake for eqn in loops}) from problem
