"""What a loop runs that stays with XLA: each of its steps may be made of kernels all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir.jaxprs import Closed, Eqn
from jaxpr2triton.ir.tracing import avals, traced
from jaxpr2triton.normalize.rewrite import typed_as
from jaxpr2triton.pipeline.xla_time import time_of_step
from jaxpr2triton.policy import Policy

BODIES = {"scan": "jaxpr", "repeat": "jaxpr", "while": "body_jaxpr"}  # the parameter that each step runs


def steps_worth_planning(eqns: Sequence[Eqn], policy: Policy) -> Iterator[tuple[int, Closed]]:
    """The loops, by their places, in each step of which XLA would launch much, or run a loop."""
    for place, eqn in enumerate(eqns):
        if eqn.primitive.name in BODIES:
            body: Closed = eqn.params[BODIES[eqn.primitive.name]]
            launches = time_of_step(body, policy).launches
            if launches >= policy.loops.launches_of_a_graph or any(
                each.primitive.name in BODIES for each in body.jaxpr.eqns
            ):
                yield place, body


def run_loop(eqn: Eqn, values: Sequence[Any], run: Callable[..., list[Any]]) -> list[Any]:
    """The results of a loop, each step of which is done by `run`."""
    parameter = BODIES[eqn.primitive.name]
    body: Closed = eqn.params[parameter]

    def step(*args: Any) -> list[Any]:
        return [typed_as(value, aval) for value, aval in zip(run(*args), body.out_avals, strict=True)]

    params = {**eqn.params, parameter: traced(step, *avals(body))}
    return list(bind_equation(eqn.replace(params=params), values))
