"""Of the best schedules by estimate, the one whose machine code takes least: what `schedule="compile"` asks for.

    estimated       1,881   1,941   2,018 cycles a step
    compiled          805     831     926, as the model reads their machine code: the first is taken

Nothing runs for it, and compiled kernels are kept. Without loops there is one schedule only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import KernelRefused, UserError
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.hardware import Target
from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.launch.cycles.latencies import machine_of
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.mistakes import mistake_of, tell
from jaxpr2triton.plan.schedule.schedule import schedules
from jaxpr2triton.progress import counted

COMPILED = 3  # schedules, the best ones by estimate


def quickest(plans: Sequence[Plan], name: str, target: Target) -> list[Plan]:
    """Each plan of a program, or a better one of the same region. A mistake of ours costs one comparison."""
    machine_of(target)  # an error also where there is no kernel
    found = []
    for plan in counted("kernel", plans):
        try:
            found.append(quickest_of(plan))
        except UserError:
            raise
        except Exception as problem:
            tell(mistake_of(problem, plan.jaxpr.jaxpr.eqns), name, f"kernel {plan.name} has a schedule by estimate")
            found.append(plan)
    return found


def quickest_of(plan: Plan) -> Plan:
    """The plan of the same region that takes the fewest cycles; the same one if none can be compiled."""
    if plan.choice is None:
        return plan
    plans = schedules(plan.jaxpr, plan.name, 0, plan.roles, plan.policy, COMPILED)
    modelled = [(each, cycles) for each in plans if (cycles := _modelled(each)) is not None]
    if not modelled:
        return plan
    taken = comparable([cycles for _, cycles in modelled])
    _, best = min(zip(taken, (each for each, _ in modelled), strict=True), key=lambda pair: pair[0])
    assert best.choice is not None  # as all schedules of a region with loops
    return replace(best, choice=replace(best.choice, compiled=tuple(sorted(taken))))


def comparable(found: Sequence[Cycles]) -> list[float]:
    """Cycles of whole kernels, or of a step of their loops, if the device finds out how many there are."""
    wholes = [each.whole for each in found if each.whole is not None]
    if len(wholes) == len(found):
        return wholes
    return [each.a_step if each.a_step is not None else math.inf for each in found]


def _modelled(plan: Plan) -> Cycles | None:
    try:
        return cycles_of(emit(plan, graph_of(plan)), plan.policy.target)
    except KernelRefused:
        return None
