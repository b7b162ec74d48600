"""Loops that no kernel can hold: how they are known, and how a mistake of ours becomes a reason to refuse them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxpr2triton.graph.exchange import is_spread_out
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.mistakes import Mistake, mistake_of
from jaxpr2triton.plan.decisions import Decisions, Reach, Refuse


def body_of(eqn: Eqn) -> int:
    """What a loop's equation is known by: its body stays the same object when the program around is traced again."""
    return id(eqn.params["jaxpr"])


def is_refused(eqn: Eqn, decisions: Decisions) -> bool:
    return decisions.reach is not Reach.ALL or body_of(eqn) in decisions.refused


def refuse_loops(eqns: Iterable[Eqn], why: str | Mistake) -> Refuse:
    """To leave all loops among these equations to XLA."""
    return Refuse({body_of(eqn): why for eqn in eqns if eqn.primitive.name in LOOPS})


def refused_for_code(plan: Plan) -> Refuse | None:
    """The loops of a kernel whose steps are longer than what compilers come to an end with, in all of its schedules."""
    most = plan.policy.cuts.instructions
    if plan.code <= most:
        return None
    why = f"a step would be {plan.code:,} instructions of each thread, and compilers come to an end with {most:,}"
    return refuse_loops(plan.jaxpr.jaxpr.eqns, why)


def refused_for_programs(plan: Plan) -> Refuse | None:
    """The loops of a kernel whose programs would wait for others that do not run before they end."""
    if not is_spread_out(plan.graph):
        return None
    target, kept = plan.policy.target, plan.choice.chosen.kept if plan.choice else 0
    if plan.programs == 1:
        return refuse_loops(plan.jaxpr.jaxpr.eqns, "one program would have all parts of the loop's state")
    if plan.programs > target.processors:
        why = f"{plan.programs:,} programs would have to run at once, and there are {target.processors} processors"
        return refuse_loops(plan.jaxpr.jaxpr.eqns, why)
    if kept > target.registers_of_a_thread:
        most = target.registers_of_a_thread
        why = f"threads of programs that meet would keep {kept:,} numbers each in a step, and have {most} registers"
        return refuse_loops(plan.jaxpr.jaxpr.eqns, why)
    return None


def refused_for(problem: Exception, eqns: Sequence[Eqn]) -> Refuse | None:
    """What a mistake of ours costs: the loops among these equations, if there are any."""
    loops = [eqn for eqn in eqns if eqn.primitive.name in LOOPS]
    if not loops:
        return None
    return refuse_loops(loops, mistake_of(problem, loops))
