"""Loops that no kernel can hold: how they are known, and how a mistake of ours becomes a reason to refuse them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.mistakes import mistake_of
from jaxpr2triton.plan.decisions import Decisions, Reach, Refuse

Made = TypeVar("Made")


def body_of(eqn: Eqn) -> int:
    """What a loop's equation is known by: its body stays the same object when the program around is traced again."""
    return id(eqn.params["jaxpr"])


def is_refused(eqn: Eqn, decisions: Decisions) -> bool:
    return decisions.reach is not Reach.ALL or body_of(eqn) in decisions.refused


def refused_for_code(plan: Plan) -> Refuse | None:
    """The loops of a kernel whose steps are longer than what compilers come to an end with, in all of its schedules."""
    most = plan.policy.cuts.instructions
    if plan.code <= most:
        return None
    loops = [eqn for eqn in plan.jaxpr.jaxpr.eqns if eqn.primitive.name in LOOPS]
    why = f"a step would be {plan.code:,} instructions of each thread, and compilers come to an end with {most:,}"
    return Refuse({body_of(eqn): why for eqn in loops})


def or_refuse(
    make: Callable[[], Made],
    eqns: Sequence[Eqn] | Callable[[], Sequence[Eqn]],
    passing: tuple[type[Exception], ...] = (),
) -> Made | Refuse:
    """A mistake of ours here costs the loops among these equations: they stay with XLA, and the report says why.

    A function is called for the equations if need be, where it takes time to find them.
    """
    try:
        return make()
    except passing:
        raise
    except Exception as problem:
        found = eqns() if callable(eqns) else eqns
        loops = [eqn for eqn in found if eqn.primitive.name in LOOPS]
        if not loops:
            raise
        mistake = mistake_of(problem, loops)
        return Refuse({body_of(eqn): mistake for eqn in loops})
