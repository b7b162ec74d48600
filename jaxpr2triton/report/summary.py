"""What there is to look at of a compiled program: what reports read, and all that is left of it in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax

from jaxpr2triton.ir.kernel import Alone, Apart, Divided, Leftover
from jaxpr2triton.ir.recorded import Recorded
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.pipeline.xla_time import launches_alone
from jaxpr2triton.plan.library import multiplied
from jaxpr2triton.plan.rounds import said
from jaxpr2triton.plan.schedule.replay import recorded_of
from jaxpr2triton.report.reasons import leftovers_of
from jaxpr2triton.report.several import schedules_compiled
from jaxpr2triton.shards.shardable_axes import divided


class Summary:
    """Each part is made when somebody asks for it. Pickled, it has all of them, and no jaxprs: they become text."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.name, self.policy, self.kernels = compiled.name, compiled.policy, compiled.kernels

    def __getstate__(self) -> dict[str, Any]:
        parts = {part: getattr(self, part) for part in _PARTS}
        parts["stages"] = {stage: str(made) for stage, made in self.stages.items()}
        parts |= {each: tuple(map(_shaped, parts[each])) for each in ("in_avals", "out_avals")}
        return {**parts, "name": self.name, "policy": self.policy, "kernels": self.kernels}

    @cached_property
    def stages(self) -> Mapping[str, Any]:
        """The program after each stage; printable."""
        return self.compiled.stages

    @cached_property
    def in_avals(self) -> Sequence[Any]:
        return self.compiled.program.in_avals

    @cached_property
    def out_avals(self) -> Sequence[Any]:
        return self.compiled.program.out_avals

    @cached_property
    def leftovers(self) -> tuple[Leftover, ...]:
        """The equations that stay with XLA, each with the reason."""
        return leftovers_of(self.compiled)

    @cached_property
    def apart(self) -> tuple[Apart, ...]:
        """Why each kernel is not one with those before it."""
        regions = [eqn.params for eqn in self.compiled.program.jaxpr.eqns if eqn.primitive is region_p]
        return tuple(each["apart"] for each in regions if "apart" in each and each["name"] not in self.compiled.lost)

    @cached_property
    def alone(self) -> Alone:
        """What XLA would launch for the program without any kernel."""
        return launches_alone(self.compiled.stages["trace"], self.policy)

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """How it was planned: what stood in the way, and what was decided then."""
        normal, plans = self.compiled.stages["normalize"], self.compiled.stages["schedule"].plans
        products = multiplied(normal, self.policy)
        return (*said(self.compiled.history, normal), *self.compiled.convolved, *products, *schedules_compiled(plans))

    @cached_property
    def divided(self) -> tuple[Divided, ...]:
        """Which axes of its inputs and outputs several devices may split."""
        return divided(self.compiled.stages["trace"])

    @cached_property
    def schedules(self) -> tuple[Recorded, ...]:
        """Those of its kernels, also of those in the steps of loops that XLA runs."""
        own = (recorded_of(plan) for plan in self.compiled.stages["schedule"].plans)
        steps = map(Summary, self.compiled.steps_of.values())
        return (*own, *(each for step in steps for each in step.schedules))


_PARTS = tuple(name for name, part in vars(Summary).items() if isinstance(part, cached_property))


def _shaped(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
