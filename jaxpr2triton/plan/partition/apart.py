"""Why a kernel and the one before it are two: what was noted when they were cut, or when they were not joined.

    softmax_0   sums up parts
    softmax_1   adds up the parts           after softmax_0: parts of a sum are made first, by many programs
    softmax_2   divides by the sum          after softmax_1: a sum over the whole array is needed first
    softmax_3   something else              beside softmax_2: they have different axes

A kernel waits for what it reads: if other kernels make it, the reason is why that was cut off, and if XLA does, that it
stays with XLA. A kernel that waits for nothing that the one before it does not wait for stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxpr2triton._compat import user_frame
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.kernel import Apart
from jaxpr2triton.ir.region import IN_MEMORY, boundary_p, flag_p, name_in_program
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cut_reasons import in_parts, left_to_xla
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.group import Group


def why_apart(
    cuts: Cuts, steps: Sequence[Eqn | Group], levels: Mapping[Eqn, int], names: Mapping[int, str]
) -> dict[int, Apart]:
    """For all kernels but the first: by the id of their groups, of which `names` has the kernels' names.

    `steps` are groups and equations of XLA's, in the order in which they run, and `levels` are those of the latter.
    """
    makers = _makers(cuts, steps)
    found: dict[int, Apart] = {}
    before: Group | None = None
    for step in steps:
        if not isinstance(step, Group):
            continue
        if before is not None:
            name = names[id(step)]
            if step.level > before.level:
                apart = _waiting(cuts, step, name, levels, makers, names)
            else:
                apart = Apart(name, (names[id(before)],), False, step.apart)
            if apart is not None and apart.why:
                found[id(step)] = apart
        before = step
    return found


def _makers(cuts: Cuts, steps: Sequence[Eqn | Group]) -> dict[Var, Eqn | Group]:
    """The group or the equation that brings each value into memory."""
    makers = {var: step for step in steps for var in (step.roots if isinstance(step, Group) else step.outvars)}
    boundaries = [eqn for eqn in cuts.jaxpr.eqns if eqn.primitive in IN_MEMORY]
    return makers | {eqn.outvars[0]: makers[eqn.invars[0]] for eqn in boundaries if eqn.invars[0] in makers}


def _waiting(
    cuts: Cuts,
    group: Group,
    name: str,
    levels: Mapping[Eqn, int],
    makers: Mapping[Var, Eqn | Group],
    names: Mapping[int, str],
) -> Apart | None:
    """What a kernel waits for is what came into memory last."""
    loads = [var for var in loads_of(cuts, group.space) if var in makers]
    level = {var: maker.level if isinstance(maker := makers[var], Group) else levels[maker] for var in loads}
    last = [var for var in loads if level[var] == max(level.values())]
    cut = [var for var in last if isinstance(makers[var], Group)]
    if cut:
        others = tuple(dict.fromkeys(names[id(makers[var])] for var in cut))
        return Apart(name, others, True, _why_cut(cuts, cut[0]), str(user_frame(cuts.maker(cut[0])) or ""))
    outside = {var: maker for var in last if not isinstance(maker := makers[var], Group)}
    if outside:
        primitives = dict.fromkeys(map(name_in_program, outside.values()))
        return Apart(name, (), True, left_to_xla(primitives), str(user_frame(next(iter(outside.values()))) or ""))
    return None


def _why_cut(cuts: Cuts, value: Var) -> str:
    eqn = cuts.maker(value)
    if eqn.primitive is flag_p:
        return cut_reasons.FLAG
    if eqn.primitive is not boundary_p:
        return cuts.because.get(value, "")
    (part,) = variables(eqn.invars)
    return in_parts(cuts.maker(part))
