"""What stays with XLA, each equation with the reason; of a loop, everything that keeps it out of kernels."""

from __future__ import annotations

from typing import Any

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import Reason, WhyNot
from jaxpr2triton.graph.covered import all_in_the_way, why_not
from jaxpr2triton.ir.jaxprs import equations, jaxprs_in
from jaxpr2triton.ir.kernel import Leftover, Obstacle, StepOfLoop
from jaxpr2triton.ir.launches import is_loop
from jaxpr2triton.ir.region import moved_by, region_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.pipeline.compile import RAW_LOOPS
from jaxpr2triton.pipeline.compiled_program import Compiled, is_free
from jaxpr2triton.pipeline.xla_time import is_known, launches_of, time_of_equation
from jaxpr2triton.plan.decisions import Reach
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.report.equations import name_of, printed


def leftovers_of(compiled: Compiled) -> tuple[Leftover, ...]:
    eqns = compiled.program.jaxpr.eqns
    steps = {id(eqns[place]): step for place, step in compiled.steps_of.items()}
    lost = [(eqn.params["jaxpr"], compiled.lost.get(eqn.params["name"])) for eqn in eqns if eqn.primitive is region_p]
    mistakes = {id(eqn): mistake for region, mistake in lost if mistake for eqn in region.jaxpr.eqns}
    return tuple(
        leftover_of(eqn, mistakes.get(id(eqn), compiled.why_nothing), compiled, steps.get(id(eqn)))
        for eqn in compiled.left_to_xla
    )


def shares_of(compiled: Compiled) -> tuple[int, int]:
    """How many equations are in kernels, and how many stay with XLA; those in the bodies of loops count too."""
    inside = outside = 0
    for eqn in compiled.program.jaxpr.eqns:
        count = sum(1 for body in jaxprs_in(eqn) for _ in equations(body))
        if eqn.primitive is not region_p:
            outside += 0 if is_free(eqn) else 1 + count
        elif eqn.params["name"] in compiled.lost:
            outside += count
        else:
            inside += count
    return inside, outside


def obstacles_of(eqn: Any) -> tuple[Obstacle, ...]:
    """Those of a loop, those of the loops in it included; none for other equations."""
    found = all_in_the_way(eqn) if eqn.primitive.name in LOOPS else ()
    return tuple(
        Obstacle(inner.primitive.name, str(user_frame(inner) or ""), refusal.reason, refusal.takes)
        for inner, refusal in found
    )


def leftover_of(eqn: Any, because: Reason, compiled: Compiled, step: Compiled | None = None) -> Leftover:
    reason: Any = because or why_not(eqn)
    no_loops = compiled.decisions.reach is Reach.NO_LOOPS and compiled.decisions.because
    if no_loops and eqn.primitive.name in RAW_LOOPS:
        reason = no_loops
    elif reason is None and eqn.primitive.name in LOOPS:
        reason = compiled.decisions.refused[body_of(eqn)]
    why = str(reason) if reason is not None else "it is part of a computation that stays with XLA"
    obstacles = () if because or no_loops else obstacles_of(eqn)  # else its body is as the user wrote it
    if (reasons := len({each.why for each in obstacles})) > 1:
        why += f" (the first of {reasons} reasons)"
    policy, taken = compiled.policy, None if step is None else step.taken
    time = time_of_equation(eqn, policy, taken).priced(policy.products.launch_after_gap_us).microseconds
    return Leftover(
        name_of(eqn),
        " ".join(printed(eqn).split()),
        str(user_frame(eqn) or ""),
        why,
        reason.takes if isinstance(reason, WhyNot) else "",
        launches_of(eqn, policy, taken) if is_loop(eqn) else None,
        obstacles,
        None if step is None else StepOfLoop(step.all_kernels, tuple(map(name_of, step.left_to_xla))),
        eqn.primitive.name == "fused" and eqn.params["backend"] != "xla",
        moved_by(eqn),
        time if is_known(eqn) else None,
    )
