"""The regions of a program on their way to kernels: each has a plan, then a graph, then its kernel.

A mistake of ours costs as little as it can: the roles that were asked for; without any, the loops of the region; of a
region without loops, its kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jaxpr2triton.errors import Mistake, UserError
from jaxpr2triton.graph.nodes import Graph
from jaxpr2triton.graph.show import show_graph
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.mistakes import mistake_of
from jaxpr2triton.plan.decisions import DropRoles, Refuse, Wish
from jaxpr2triton.plan.refusal import refused_for
from jaxpr2triton.progress import counted

Made = TypeVar("Made")


@dataclass(frozen=True)
class Unit:
    """What is one kernel: a region, or several of one name; as far as a stage has brought it."""

    plan: Plan
    graph: Graph | None = None
    kernel: Kernel | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    def __str__(self) -> str:
        if self.kernel is not None:
            return self.kernel.source
        if self.graph is None:
            return str(self.plan)
        lines = show_graph(self.graph, argument_names(self.plan.jaxpr)).splitlines()
        return "\n".join([self.plan.title, *(f"  {line}" for line in lines)])


@dataclass(frozen=True)
class Units:
    """The units of a program after a stage, in the order in which they are first launched."""

    program: Any  # the partitioned jaxpr
    units: tuple[Unit, ...] = ()
    lost: Mapping[str, Mistake] = field(default_factory=dict)  # regions that stay with XLA, by their names
    nothing: str = "no kernels"  # what is printed of none

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(unit.plan for unit in self.units)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """That of each launch, in order."""
        kernels = {unit.name: unit.kernel for unit in self.units}
        launched = (eqn.params["name"] for eqn in self.program.jaxpr.eqns if eqn.primitive is region_p)
        return tuple(kernel for name in launched if (kernel := kernels.get(name)) is not None)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.units)) or self.nothing


def advance(units: Units, make: Callable[[Unit], Unit], nothing: str = Units.nothing) -> Units | Wish:
    """The units after one more stage."""
    found, lost = [], dict(units.lost)
    for unit in counted("kernel", units.units):
        match attempt(functools.partial(make, unit), unit.plan.jaxpr, unit.plan.roles):
            case Unit() as made:
                found.append(made)
            case Mistake() as mistake:
                lost[unit.name] = mistake
            case wish:
                return wish
    return Units(units.program, tuple(found), lost, nothing)


def attempt(make: Callable[[], Made], region: Any, roles: Mapping[str, Role]) -> Made | DropRoles | Refuse | Mistake:
    """What is made of a region with these roles; or what a mistake of ours costs."""
    try:
        return make()
    except UserError:
        raise
    except Exception as problem:
        if roles:
            return DropRoles(mistake_of(problem, region.jaxpr.eqns))
        return refused_for(problem, region.jaxpr.eqns) or mistake_of(problem, region.jaxpr.eqns)
