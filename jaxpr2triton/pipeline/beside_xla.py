"""Which loops, or which products of loops, XLA computes although a kernel could, by what both would take.

    h, _ = scan (λ h x. let h' = tanh (x + h @ u) in (h', h')) h0 xs     h: f32[1024,128] u: f32[128,512]
        a kernel of 1024 programs takes about 25,000 µs for 512 steps, and XLA about 5,000 µs for 3,072 launches

    x = scan (λ x. x + sum (force (x - x[:, None])) 0) x0 steps          x: f32[1024,3]
        a kernel of one program takes about 17,000 µs for 100 steps, and XLA about 1,300 µs for 600 launches

XLA launches each step from the host, several times, but shares out what it computes over all processors
(`xla_time.py`). A program of a kernel has a few rows of its own, and the whole matrix for them; what one program holds
it computes alone, while all others have nothing to do. So every kernel with loops is weighed: what its schedule is
estimated to take, and a launch. What keeps programs from being many is given up first: products that no step waits for,
and what a kernel keeps although its end could bring it into memory.

    h, _ = scan (λ h x. let h' = tanh (x @ w + h @ u) in (h', h')) h0 xs     w, u: f32[64,64]
        x @ w takes about 30 µs of 512 steps, and about 8 µs all at once, with a launch

Threads multiply what a step has, one number after the other, while most processors have nothing to do. A product that
no step waits for is of all steps at once instead, where that takes less time.
"""

from __future__ import annotations

import math
from collections import Counter

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.graph.exchange import is_spread_out
from jaxpr2triton.graph.nodes import Load
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, jaxprs_in, nbytes
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.scans import LOOPS, UNKNOWN
from jaxpr2triton.normalize.loops.products_apart import left_of
from jaxpr2triton.pipeline.xla_time import time_of_xla
from jaxpr2triton.plan.decisions import Leave, Part
from jaxpr2triton.plan.library import TAKES, library_time, shown
from jaxpr2triton.plan.refusal import body_of


def left_by(plan: Plan) -> Leave | None:
    """The loops of a kernel that had better be XLA's, if it would take longer."""
    if plan.steps is None:
        return None
    policy, eqns = plan.policy, plan.jaxpr.jaxpr.eqns
    kernel, other = time_of_kernel(plan), time_of_xla(plan.jaxpr, policy)
    most = policy.loops.spread_pays if is_spread_out(plan.graph) else policy.loops.longer
    if kernel <= most * other.microseconds:
        return None
    loops = [eqn for eqn in eqns if eqn.primitive.name in LOOPS]
    programs = "one program" if plan.programs == 1 else f"{plan.programs:,} programs"
    steps = f"{plan.steps.count:,} steps"
    if not plan.steps.known:
        steps += f", if each `while` has {UNKNOWN},"
    why = (
        f"a kernel of {programs} takes about {shown(kernel)} µs for {steps} and XLA about "
        f"{shown(other.microseconds)} µs for {other.launches:,} launches on all processors"
    )
    multiply = any(_multiplies(body) for eqn in loops for body in jaxprs_in(eqn))
    return Leave({body_of(eqn): WhyNot(why, TAKES) for eqn in loops}, multiply)


def time_of_kernel(plan: Plan) -> float:
    """Microseconds of a kernel with loops."""
    assert plan.steps is not None
    policy, computed = plan.policy, plan.steps.microseconds(plan.policy.target.clock)
    return policy.products.launch_after_gap_us + max(computed, policy.target.moving(_moved(plan)))


def _moved(plan: Plan) -> int:
    """Bytes that a kernel reads and writes: of an array that it looks up no more than what it looks up there."""
    inner, asked = plan.jaxpr.jaxpr, Counter[int]()
    for load in plan.graph.of_kind(Load):
        asked[load.buffer] += math.prod(axis.size for axis in load.axes)
    read = (min(var.aval.size, asked[n]) * var.aval.dtype.itemsize for n, var in enumerate(inner.invars) if n in asked)
    return sum(read) + nbytes(*dict.fromkeys(variables(inner.outvars)))


def _multiplies(body: Jaxpr) -> bool:
    """Whether there is a product that could leave a loop."""
    inner = [jaxpr for eqn in body.eqns for jaxpr in jaxprs_in(eqn)]
    products = (eqn for eqn in body.eqns if eqn.primitive.name == "dot_general")
    return any(not is_short_contraction(eqn) for eqn in products) or any(map(_multiplies, inner))


def parted_by(plan: Plan) -> Part | None:
    """That products which no step waits for are made of all steps at once, if the steps of a kernel take longer."""
    if plan.steps is None or plan.form is Form.DOT:  # units for matrices take hardly any time
        return None
    loops = [eqn for eqn in plan.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    found = [(each, eqn.params["length"], fixed) for eqn in loops for each, fixed in left_of(eqn)]
    in_steps = sum(length * _multiplied(each, plan) for each, length, _ in found)
    launch = plan.policy.products.launch_after_gap_us
    at_once = sum(launch + library_time(each, plan.policy, *times) for each, *times in found)
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
