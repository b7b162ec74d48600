"""What is compared is one value: copies of it that would meet in a decision come into memory, where they are one.

    m = reduce_max (dot_general x w);   g = eq (dot_general x w) m      the gradient of a maximum asks so

Which values those are, `graph/compared.py` says of the kernels that there would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxpr2triton.graph.compared import apart, decides
from jaxpr2triton.graph.origins import Kernel, Step
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var, jaxprs_in
from jaxpr2triton.ir.region import IN_MEMORY
from jaxpr2triton.plan.decisions import KeepMore, Refuse
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.ends import end_of
from jaxpr2triton.plan.partition.group import Group
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.plan.refusal import body_of

WHY = "a step compares copies of a value that it makes at several places"


def made_apart(cuts: Cuts, groups: Sequence[Group]) -> list[Var] | KeepMore:
    """What has to come into memory, because several kernels, or one kernel at several places, make it and compare it.

    What the steps of a loop make so, its kernel has to keep.
    """
    found: dict[Var, None] = {}
    kept: dict[Var, int] = {}  # and the body of its loop
    for copy in apart(list(_steps(cuts, groups)), variables(cuts.jaxpr.outvars)):
        value, compared = copy.eqn.outvars[0], copy.compared.outvars[0]
        if value in cuts.makers:
            end = end_of(cuts, copy.eqn, value)
            end = value if end in cuts.loaded else end
            # In 16 bits it is another number in memory than where it is made: what is made of both is one, if written.
            found.setdefault(compared if end in cuts.loaded and compared in cuts.makers else end)
        elif (loop := _loop_of(cuts, copy.eqn)) is not None:
            unwritten = [var for var in loop.outvars if var not in cuts.loaded]
            if len(copy.kernels) > 1 and unwritten:
                found.update(dict.fromkeys(unwritten))
            else:
                kept[value] = body_of(loop)
    values = sorted((var for var in found if var not in cuts.loaded or var in cuts.shared), key=cuts.makers.__getitem__)
    if values or not kept:
        return values
    wanted = tuple((var, tuple(range(len(var.aval.shape)))) for var in kept)
    return KeepMore(wanted, Refuse(dict.fromkeys(kept.values(), WHY)))


def _steps(cuts: Cuts, groups: Sequence[Group]) -> Iterable[Step]:
    yield from cuts.outside
    yield from cuts.views
    yield from (eqn for eqn in cuts.jaxpr.eqns if eqn.primitive in IN_MEMORY)
    for group in groups:
        space = group.space
        if not space.steps and decides(space.graph):  # what a kernel makes at one place depends on its own equations
            space = cuts.space_of(group.roots, union=True, alone=True) or space
        yield Kernel(space.graph, cuts.numbered, space.outputs, {})


def _loop_of(program: Program, eqn: Eqn) -> Eqn | None:
    """The loop in whose body, or in a body of that, an equation is."""
    for loop in program.inside:
        bodies = reachable(jaxprs_in(loop), lambda body: (inner for each in body.eqns for inner in jaxprs_in(each)), id)
        if any(each is eqn for body in bodies for each in body.eqns):
            return loop
    return None
