"""Schedules that are given, and schedules given out: `ir/recorded.py` says what they look like.

A schedule is applied to the region that it was made for: it picks one of the candidates of the search, or changes
blocks, warps and stages of one. One that cannot be had is answered with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan, PlannedAxis, power_of_two
from jaxpr2triton.ir.recorded import Recorded, RecordedAxis, key_of
from jaxpr2triton.plan.schedule.cost import work_of
from jaxpr2triton.plan.schedule.schedule import (
    SMALLER,
    Candidate,
    Scheduled,
    all_ranked,
    code_of,
    estimate_of,
    plan_of,
    scheduled_of,
)
from jaxpr2triton.plan.schedule.tiles import residents
from jaxpr2triton.policy import Policy

MOST_STAGES = 8  # of a loop whose loads are on their way


def replayed(region: Closed, name: str, record: Recorded, policy: Policy) -> Plan | str:
    """The plan that a schedule says, or why there is none: one of those that could be chosen, or with other blocks."""
    roles = {axis: Role(role) for axis, role in record.roles}
    wanted = record.axes, record.num_warps, record.num_stages, record.form, record.reload
    closest: Sequence[Candidate] = ()
    for shrink in range(SMALLER):
        scheduled = scheduled_of(region, name, shrink, policy)
        try:
            ranked = all_ranked(scheduled, roles)
        except UserError as problem:
            return problem.what
        if (found := next((each for each in ranked if _decided(each) == wanted), None)) is not None:
            return replace(plan_of(scheduled, found, ranked, roles), recorded=True)
        closest = closest or [each for each in ranked if _has_axes(each, record)]
    if not closest:
        return f"it is for axes {_listed(record.axes)}, and the kernel has {_listed(_shown(ranked[0].axes))}"
    altered = _altered(closest[0], record, scheduled)
    return altered if isinstance(altered, str) else replace(plan_of(scheduled, altered, closest, roles), recorded=True)


def recorded_of(plan: Plan) -> Recorded:
    """The schedule of a plan as data."""
    roles = tuple((axis, role.value) for axis, role in plan.roles.items())
    return Recorded(key_of(plan.jaxpr, plan.policy.target.name), plan.name, *_decided(plan), roles)


Decided = tuple[tuple[RecordedAxis, ...], int, int, str | None, bool]


def _shown(axes: Iterable[PlannedAxis]) -> tuple[RecordedAxis, ...]:
    return tuple(RecordedAxis(each.axis.name, each.axis.size, each.role.value, each.block) for each in axes)


def _decided(each: Candidate | Plan) -> Decided:
    form = each.form.value if each.form is not None else None
    return _shown(each.axes), each.num_warps, each.num_stages, form, each.reload


def _has_axes(each: Candidate, record: Recorded) -> bool:
    """Whether a schedule differs in nothing but blocks, warps and stages."""
    axes, _, _, form, reload = _decided(each)
    without = [[axis[:3] for axis in some] for some in (axes, record.axes)]
    return without[0] == without[1] and (form, reload) == (record.form, record.reload)


def _altered(each: Candidate, record: Recorded, scheduled: Scheduled) -> Candidate | str:
    """A candidate with the blocks, warps and stages of a schedule, or why it cannot have them."""
    draft, policy = each.draft, scheduled.policy
    for planned, axis in zip(each.axes, record.axes):
        is_fixed = planned.role.is_unrolled or planned.axis in draft.steps or each.form is not None
        is_power = axis.block > 0 and axis.block == power_of_two(axis.block) <= power_of_two(axis.size)
        holds = axis.block >= axis.size or not planned.role.is_vectorized
        if axis.block != planned.block and (is_fixed or not is_power or not holds):
            return f"axis {axis.name} cannot have a block of {axis.block}"
    if not 0 < record.num_warps == power_of_two(record.num_warps) <= policy.blocks.warps:
        return f"a program cannot have {record.num_warps} warps"
    if not 0 < record.num_stages <= MOST_STAGES:
        return f"a program cannot have {record.num_stages} stages"
    axes = tuple(replace(planned, block=axis.block) for planned, axis in zip(each.axes, record.axes))
    found = replace(each, axes=axes, num_warps=record.num_warps, num_stages=record.num_stages)
    if each.estimate is None:
        return found
    shapes = scheduled.arrays.read
    work = work_of(found.graph, draft, residents(found.graph, draft, shapes)[0], shapes)
    estimated = estimate_of(work, axes, record.num_warps, scheduled.width, policy)
    return replace(found, estimate=estimated, code=code_of(work, axes, record.num_warps, policy))


def _listed(axes: Iterable[RecordedAxis]) -> str:
    return ", ".join(map(str, axes)) or "none"
