"""A compiled program: what runs of it as kernels, and which equations stay with XLA."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax

from jaxpr2triton._compat import source_of, user_frame
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import Mistake, Reason
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.ir.chunks import chunks_p, run_chunks
from jaxpr2triton.ir.evaluate import read, run
from jaxpr2triton.ir.jaxprs import calls_python
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.launch.call.primitive import Mode, launch_kernel
from jaxpr2triton.mistakes import mistake_of, tell
from jaxpr2triton.pipeline.kernel_time import busy_of
from jaxpr2triton.pipeline.loop_steps import run_loop
from jaxpr2triton.pipeline.xla_time import Taken, time_of_parts
from jaxpr2triton.plan.decisions import UNDECIDED, Decisions, Reach
from jaxpr2triton.plan.schedule.schedule import schedule
from jaxpr2triton.plan.search import Round
from jaxpr2triton.policy import DEFAULT_POLICY, Policy

SHRINKS = (1, 2, 3)  # the smaller schedules to try when Triton refuses a kernel


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program as kernels and leftovers, ready to be run inside of a trace."""

    name: str
    stages: Mapping[str, Any]  # what each stage made, printable
    decisions: Decisions = UNDECIDED  # with which they made it
    history: tuple[Round, ...] = ()  # that led to those
    captured: tuple[Any, ...] = ()  # the leading operands of the program
    policy: Policy = DEFAULT_POLICY  # of the machine that it is for
    convolved: tuple[str, ...] = ()  # what is, in kernels, each with what it would take otherwise
    steps_of: Mapping[int, Compiled] = field(default_factory=dict)  # the steps of loops that XLA runs, by their places

    @property
    def why_nothing(self) -> Reason:
        """Why the whole program was left to XLA, if it was."""
        return self.decisions.because if self.decisions.reach is Reach.NOTHING else ""

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The attempts that did not come to their end."""
        return tuple(each for each in self.history if not each.is_foreseen)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Whatever went wrong in this compiler."""
        inside = (mistake for step in self.steps_of.values() for mistake in step.mistakes)
        return (*self.decisions.mistakes, *self.lost.values(), *inside)

    @property
    def program(self) -> Any:
        return self.stages["partition"]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """That of each launch, in order."""
        return self.stages["emit"].kernels

    @property
    def all_kernels(self) -> tuple[Kernel, ...]:
        """Those in the steps of loops that XLA runs, too."""
        return (*self.kernels, *(kernel for step in self.steps_of.values() for kernel in step.all_kernels))

    @property
    def lost(self) -> Mapping[str, Mistake]:
        """The regions that stay with XLA because of a mistake, by their names."""
        return self.stages["emit"].lost

    @cached_property
    def taken(self) -> Taken:
        """What it takes by an estimate, and all that is launched for it; launches outside of loops are pending."""
        kernels = {kernel.name: busy_of(kernel, self.policy) for kernel in self.kernels}
        steps = {place: step.taken for place, step in self.steps_of.items()}
        return time_of_parts(self.program, kernels, steps, self.policy)

    @cached_property
    def left_to_xla(self) -> tuple[Any, ...]:
        """The equations that stay with XLA, but for those that it launches nothing for."""
        found: list[Any] = []
        for eqn in self.program.jaxpr.eqns:
            if eqn.primitive is not region_p:
                found += [] if is_free(eqn) and not self.why_nothing else [eqn]
            elif eqn.params["name"] in self.lost:
                found += eqn.params["jaxpr"].jaxpr.eqns
        return tuple(found)

    @cached_property
    def alternatives(self) -> Mapping[str, tuple[Kernel, ...]]:
        """For each kernel the same one in smaller schedules."""
        return {plan.name: tuple(self._smaller(plan)) for plan in self.stages["emit"].plans}

    def _smaller(self, plan: Plan) -> Iterator[Kernel]:
        for shrink in SHRINKS:
            try:
                smaller = schedule(plan.jaxpr, plan.name, shrink, plan.roles, plan.policy)
                yield emit(smaller, graph_of(smaller))
            except Exception as problem:
                mistake = mistake_of(problem, plan.jaxpr.jaxpr.eqns)
                tell(mistake, self.name, f"kernel {plan.name} has other schedules")

    def run(self, mode: Mode, strict: bool, *args: Any) -> list[Any]:
        """The outputs, from kernels and from what XLA keeps; traceable."""
        inner = self.program.jaxpr
        env = dict(zip(inner.invars, [*self.captured, *args], strict=True))
        kernels = {kernel.name: kernel for kernel in self.kernels}
        smaller = self.alternatives if mode == "device" else {}
        steps = {id(inner.eqns[place]): step for place, step in self.steps_of.items()}

        def launch(eqn: Any, values: list[Any]) -> list[Any] | None:
            if id(eqn) in steps:
                step = functools.partial(steps[id(eqn)].run, mode, strict)
                return run_chunks(eqn, values, step) if eqn.primitive is chunks_p else run_loop(eqn, values, step)
            if eqn.primitive is not region_p or eqn.params["name"] in self.lost:
                return None
            kernel, region = kernels[eqn.params["name"]], eqn.params["jaxpr"]
            with source_of(_result_of(region)), jax.named_scope(kernel.name):  # profiles have the user's scopes
                return launch_kernel(kernel, region, values, mode, strict, smaller.get(kernel.name, ()))

        run(inner.eqns, env, launch)
        return [read(env, atom) for atom in inner.outvars]


def _result_of(region: Any) -> Any:
    """The last equation that has a line of the user's."""
    eqns = region.jaxpr.eqns
    return next((eqn for eqn in reversed(eqns) if user_frame(eqn) is not None), eqns[-1])


def is_free(eqn: Any) -> bool:
    """XLA launches nothing for a reshape of what is in memory already, nor for results without elements.

    What calls Python or has effects is told all the same.
    """
    if eqn.effects or calls_python(eqn):
        return False
    renames = eqn.primitive.name in ("random_wrap", "random_unwrap")  # keys and their words are the same memory
    renames = renames or (eqn.primitive.name in ("reshape", "squeeze") and why_not(eqn) is None)
    return renames or all(0 in getattr(var.aval, "shape", ()) for var in eqn.outvars)
