"""Which products of loops, or whole loops, XLA computes although a kernel could, by what both would take.

    h, _ = scan (λ h x. let h' = tanh (x + h @ u) in (h', h')) h0 xs     h: f32[1024,128] u: f32[128,512]
        kernels take about 25,000 µs for 512 steps, and XLA about 5,200 µs for 3,072 launches and their products

XLA launches each step from the host, several times, but shares out what it multiplies over all processors. A program of
a kernel has a few rows of its own, and the whole matrix for them. All that a step does besides takes as long either
way, so of loops with a program for each processor only those that multiply are weighed.

    x = scan (λ x. x + sum (force (x - x[:, None])) 0) x0 steps          x: f32[1024,3]
        a step of one program takes about 110 µs, and XLA's about 19 µs for 6 launches on all processors

What one program holds it computes alone, while all others have nothing to do.

    h, _ = scan (λ h x. let h' = tanh (x @ w + h @ u) in (h', h')) h0 xs     w, u: f32[64,64]
        x @ w takes about 30 µs of 512 steps, and about 8 µs all at once, with a launch

Threads multiply what a step has, one number after the other, while most processors have nothing to do. A product that
no step waits for is of all steps at once instead, where that takes less time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, jaxprs_in
from jaxpr2triton.ir.launches import launches_of
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.scanned import scanned_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.normalize.loops.products_apart import left_of
from jaxpr2triton.plan.decisions import Leave, Part
from jaxpr2triton.plan.library import TAKES, library_time, shown
from jaxpr2triton.plan.refusal import body_of


def left_by(plan: Plan) -> Leave | None:
    """The loops of a kernel that had better be XLA's, if it would take longer."""
    if plan.steps is None:
        return _alone(plan)
    policy, steps = plan.policy, plan.steps
    loops = [eqn for eqn in plan.jaxpr.jaxpr.eqns if eqn.primitive.name in LOOPS]
    count = steps.count or 1
    clock = policy.target.clock * 1000  # cycles of a µs
    launched = [found for eqn in loops if (found := launches_of(eqn)) is not None]
    launches = sum((each.a_step + policy.loops.launches_of_a_step) * (each.steps or 1) for each in launched)
    products = sum(times * library_time(each, policy) for eqn in loops for each, times in _products(eqn))
    kernel, others = count * steps.cycles / clock, count * steps.others / clock
    asked = sum(policy.loops.asking for each in launched if each.steps is None)
    xla = others + launches * policy.loops.launch + products + asked
    if kernel <= xla:
        return None
    what = f"{launches:,} launches and what they multiply"
    if steps.count is None:
        why = f"a kernel takes about {shown(kernel)} µs for each step, and XLA about {shown(xla)} µs for {what}"
    else:
        why = f"a kernel takes about {shown(kernel)} µs for {count:,} steps, and XLA about {shown(xla)} µs for {what}"
    return Leave({body_of(eqn): WhyNot(why, TAKES) for eqn in loops if any(True for _ in _products(eqn))})


def _alone(plan: Plan) -> Leave | None:
    """A loop whose steps a few programs compute, if XLA's launches and its share of all processors take less."""
    policy, target = plan.policy, plan.policy.target
    eqns = plan.jaxpr.jaxpr.eqns
    loops = [eqn for eqn in eqns if eqn.primitive.name in LOOPS]
    if plan.choice is None or plan.programs >= target.processors or len(loops) != 1:
        return None
    if _has_tiles(eqns) or any(_has_tiles(body.eqns) or _has_loops(body.eqns) for body in jaxprs_in(loops[0])):
        return None  # one of its steps is many of XLA's, or nobody says how many
    launched = launches_of(loops[0])
    assert launched is not None
    count = launched.a_step + policy.loops.launches_of_a_step
    kernel = plan.choice.chosen.cycles / (1000 * target.clock)
    # a launch and the break before it, as nothing else fills the device meanwhile
    xla = count * policy.products.launch + kernel * plan.programs / target.processors
    if launched.steps is None:
        xla += policy.loops.asking
    if kernel <= xla:
        return None
    programs = "one program" if plan.programs == 1 else f"{plan.programs} programs"
    why = (
        f"a step of {programs} takes about {shown(kernel)} µs, and XLA's about {shown(xla)} µs for {count} launches on "
        "all processors"
    )
    return Leave({body_of(loops[0]): WhyNot(why, TAKES)}, multiply=any(True for _ in _products(loops[0])))


def _has_tiles(eqns: Iterable[Eqn]) -> bool:
    """Of steps, which XLA takes one by one."""
    return any(eqn.primitive is scanned_p for eqn in eqns)


def _has_loops(eqns: Iterable[Eqn]) -> bool:
    return any(eqn.primitive.name in LOOPS for eqn in eqns)


def parted_by(plan: Plan) -> Part | None:
    """That products which no step waits for are made of all steps at once, if the steps of a kernel take longer."""
    if plan.steps is None or plan.form is Form.DOT:  # units for matrices take hardly any time
        return None
    loops = [eqn for eqn in plan.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    found = [(each, eqn.params["length"], fixed) for eqn in loops for each, fixed in left_of(eqn)]
    in_steps = sum(length * _multiplied(each, plan) for each, length, _ in found)
    at_once = sum(plan.policy.products.launch + library_time(each, plan.policy, *times) for each, *times in found)
    if in_steps <= at_once:
        return None
    return Part(
        f"what no step waits for takes about {shown(in_steps)} µs of a loop to multiply, and about {shown(at_once)} µs "
        "all at once"
    )


def _multiplied(product: Eqn, plan: Plan) -> float:
    """Microseconds of a step in which threads multiply, one number after the other."""
    target, threads = plan.policy.target, plan.num_warps * plan.policy.target.warp_size
    warps = math.ceil(plan.programs / target.processors) * plan.num_warps
    cycles = max(plan.policy.cost.alone, target.issue * math.ceil(warps / target.schedulers))
    return product.outvars[0].aval.size * terms_of(product) / (plan.programs * threads) * cycles / (1000 * target.clock)


def _products(loop: Eqn) -> Iterator[tuple[Eqn, int]]:
    """The contractions in a loop, and how often it makes each."""
    found = launches_of(loop)
    times = found.steps or 1 if found is not None else 1
    for body in jaxprs_in(loop):
        for each, more in _in_body(body):
            yield each, times * more


def _in_body(body: Jaxpr) -> Iterator[tuple[Eqn, int]]:
    for eqn in body.eqns:
        if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
            yield eqn, 1
        elif eqn.primitive.name in LOOPS:
            yield from _products(eqn)
        else:
            for inner in jaxprs_in(eqn):
                yield from _in_body(inner)
