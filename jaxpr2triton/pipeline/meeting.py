"""Kernels whose programs wait for each other, as they are compiled: whether all run at once, and keep what they make.

    f of 128 programs: 255 registers, 7,000 words put aside in each step     →   its loop stays with XLA

An estimate is not enough for them. If one program of the grid finds no room, none ever ends; and all wait for the one
that is slowed down. What is compiled here is compiled anyway, and kept for the launch.
"""

from __future__ import annotations

from jaxpr2triton.errors import KernelRefused, SourceRefused
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from jaxpr2triton.pipeline.units import Units
from jaxpr2triton.plan.decisions import Refuse
from jaxpr2triton.plan.refusal import refuse_loops, refused_for


def refused_as_compiled(units: Units) -> Refuse | None:
    """The loops of the first kernel whose programs meet that had better not."""
    for unit in units.units:
        if unit.kernel is None or not unit.kernel.meets:
            continue
        policy, eqns = unit.plan.policy, unit.plan.jaxpr.jaxpr.eqns
        try:
            needed = resources(compile_kernel(unit.kernel, policy.target))
        except SourceRefused as problem:
            return refused_for(problem, eqns)
        except KernelRefused as refused:
            return refuse_loops(eqns, refused.what)
        spilled, most = needed.spill_stores + needed.spill_loads, policy.loops.spilled_where_programs_meet
        if spilled > most:
            why = f"threads of programs that meet would put {spilled:,} bytes aside in each step, and {most:,} are few"
            return refuse_loops(eqns, why)
    return None
