"""The type checker that runs right after every stage: is this a program, and still the same one from outside?"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import chunked_p, stored_by


def check_program(closed: Any, like: Any) -> None:
    """Every variable is defined once and before it is used, and the types of inputs and outputs are those of `like`."""
    jaxpr = closed.jaxpr
    defined = set(jaxpr.invars) | set(jaxpr.constvars)
    for eqn in jaxpr.eqns:
        for atom in eqn.invars:
            if not isinstance(atom, jex.Literal) and atom not in defined:
                raise CompilerBug(f"`{eqn.primitive.name}` uses a variable before it is defined")
        defined.update(eqn.outvars)
    for atom in jaxpr.outvars:
        if not isinstance(atom, jex.Literal) and atom not in defined:
            raise CompilerBug("an output is not defined")
    for what, mine, theirs in (
        ("inputs", closed.in_avals, like.in_avals),
        ("outputs", closed.out_avals, like.out_avals),
    ):
        found, expected = [_type_of(a) for a in mine], [_type_of(a) for a in theirs]
        if found != expected:
            raise CompilerBug(f"a stage changed the {what}: expected {expected}, but found {found}")


def check_plan(plan: Plan) -> None:
    """Blocks are powers of two, axes have different names, and places stay within the arrays that are written."""
    names = [p.axis.name for p in plan.axes]
    if len(set(names)) != len(names):
        raise CompilerBug(f"kernel {plan.name} has two axes of one name: {names}")
    for planned in plan.axes:
        if planned.block & (planned.block - 1) or planned.block < 1:
            raise CompilerBug(f"kernel {plan.name}: the block of {planned.axis} is {planned.block}, not a power of two")
    chunked = [eqn for eqn in plan.jaxpr.jaxpr.eqns if eqn.primitive is chunked_p]
    beyond = {(eqn.outvars[0], eqn.params["dim"]): eqn.params["size"] - 1 for eqn in chunked}  # masked lanes
    for place, var in zip(plan.places, stored_by(plan.jaxpr.jaxpr), strict=True):
        for d, (index, size) in enumerate(zip(place, var.aval.shape, strict=True)):
            low, high = index.bounds
            if low < 0 or high >= size + beyond.get((var, d), 0):
                raise CompilerBug(f"kernel {plan.name} stores at {index}, outside of 0 … {size - 1}")


def _type_of(aval: Any) -> tuple[Any, ...]:
    return getattr(aval, "shape", None), getattr(aval, "dtype", None)
