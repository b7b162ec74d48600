"""What the stages after tracing make of a program; any of them may give back a wish instead, and the others wait."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxpr2triton.emit.emit import emit
from jaxpr2triton.errors import Mistake, ScheduleWarning, warn
from jaxpr2triton.graph.compared import check_compared
from jaxpr2triton.graph.planned import graph_of
from jaxpr2triton.ir.check import check_plan
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.recorded import Recorded, key_of
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.roles import Roles
from jaxpr2triton.normalize.arrays.convolved import write_convolutions
from jaxpr2triton.normalize.arrays.divided import divide_once
from jaxpr2triton.normalize.arrays.doubled import double_sums
from jaxpr2triton.normalize.arrays.exchanged import exchange_sums
from jaxpr2triton.normalize.arrays.factors import take_out_factors
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.pipeline.beside_xla import left_by, parted_by
from jaxpr2triton.pipeline.meeting import refused_as_compiled
from jaxpr2triton.pipeline.quickest import quickest
from jaxpr2triton.pipeline.row_chunks import chunk_rows
from jaxpr2triton.pipeline.units import Unit, Units, advance, attempt
from jaxpr2triton.plan.convolved import convolutions_left, remain
from jaxpr2triton.plan.decisions import Decisions, DropRoles, Reach, Tile, Wish
from jaxpr2triton.plan.in_place import left_in_place
from jaxpr2triton.plan.library import left_to_library
from jaxpr2triton.plan.refusal import refused_for_code, refused_for_programs
from jaxpr2triton.plan.schedule.replay import replayed
from jaxpr2triton.plan.schedule.role_requests import wished_for
from jaxpr2triton.plan.schedule.schedule import schedule
from jaxpr2triton.plan.schedule.tiled_products import large_products
from jaxpr2triton.policy import Policy
from jaxpr2triton.progress import counted


def normalize_program(program: Any, decisions: Decisions, roles: Roles, policy: Policy) -> tuple[Any, tuple[str, ...]]:
    """The program with what a library computes marked, and what kernels convolve; the rest of that is written out."""
    loops, apart = decisions.reach is Reach.ALL, decisions.apart or roles.contractions == "triton"
    normal = functools.partial(normalize, loops=loops, apart=apart, exact_order=roles.exact_order)
    plain, convolved = convolutions_left(normal(program), roles.contractions, policy)
    if remain(plain):
        plain = normal(write_convolutions(plain))
    if not roles.strict:
        plain = remove_dead(left_in_place(plain, policy))
    plain = remove_dead(left_to_library(divide_once(exchange_sums(plain)), roles.contractions, policy))
    plain = double_sums(take_out_factors(plain))
    is_whole = roles.strict or roles.exact_order or bool(roles.asked)
    return plain if is_whole else chunk_rows(plain, policy), tuple(convolved)


def schedule_regions(program: Any, name: str, decisions: Decisions, roles: Roles, policy: Policy) -> Units | Wish:
    """The units of a partitioned program, with their plans."""
    plans: list[Plan] = []
    lost: dict[str, Mistake] = {}
    records = {record.key: record for record in roles.schedules}
    for kernel, region in counted("kernel", _regions(program).items()):
        match attempt(functools.partial(_scheduled, region, kernel, records, policy), region, {}):
            case Plan() as plan:
                if (wish := _wish_of(plan, decisions, roles)) is not None:
                    return wish
                plans.append(plan)
            case Mistake() as mistake:
                lost[kernel] = mistake
            case refusal:
                return refusal
    # the axes that roles were asked for may be those of lost ones
    asked = _as_asked(plans, name, roles) if decisions.with_roles and not lost else plans
    if isinstance(asked, DropRoles):
        return asked
    if roles.schedule == "compile":
        searched = iter(quickest([plan for plan in asked if not plan.recorded], name, policy.target))
        asked = [plan if plan.recorded else next(searched) for plan in asked]
    for plan in asked:
        check_plan(plan)
    return Units(program, tuple(map(Unit, asked)), lost)


def build_graphs(units: Units) -> Units | Wish:
    """The units with their graphs: the values of each kernel, one by one."""
    found = advance(units, lambda unit: replace(unit, graph=graph_of(unit.plan)))
    if isinstance(found, Units):
        graphs = {unit.name: unit.graph for unit in found.units if unit.graph is not None}
        check_compared(units.program.jaxpr, {plan.name: plan.jaxpr for plan in units.plans}, graphs)
    return found


def emit_kernels(units: Units) -> Units | Wish:
    """The units with their kernels."""
    found = advance(units, _with_kernel, "# no kernels\n")
    return (refused_as_compiled(found) or found) if isinstance(found, Units) else found


def _with_kernel(unit: Unit) -> Unit:
    assert unit.graph is not None
    return replace(unit, kernel=emit(unit.plan, unit.graph))


def _regions(program: Any) -> dict[str, Any]:
    """The region that each kernel is made for: of those of one name the first one."""
    regions: dict[str, Any] = {}
    for eqn in program.jaxpr.eqns:
        if eqn.primitive is region_p:
            regions.setdefault(eqn.params["name"], eqn.params["jaxpr"])
    return regions


def _scheduled(region: Any, name: str, records: Mapping[str, Recorded], policy: Policy) -> Plan:
    """The plan of a region: as a given schedule says, if there is one for it that can be had."""
    if records and (record := records.get(key_of(region, policy.target.name))) is not None:
        found = replayed(region, name, record, policy)
        if isinstance(found, Plan):
            return found
        warn(f"the schedule of {name} is ignored: {found}", ScheduleWarning)
    return schedule(region, name, policy=policy)


def _with_roles(plan: Plan, roles: Mapping[str, Role]) -> Plan:
    """The plan of the same region with these roles."""
    found = schedule(plan.jaxpr, plan.name, 0, roles, plan.policy)
    check_plan(found)
    return found


def _wish_of(plan: Plan, decisions: Decisions, roles: Roles) -> Wish | None:
    """What had better be decided otherwise, as a schedule shows."""
    large = large_products(plan.jaxpr.jaxpr, plan.policy.blocks.room) if plan.reload else {}
    if more := decisions.not_tried(large):
        return Tile(more)
    if roles.contractions != "triton" and (dearer := left_by(plan)) is not None:
        return dearer
    if (many := refused_for_programs(plan)) is not None:
        return many
    if (endless := refused_for_code(plan)) is not None:
        return endless
    stays = decisions.apart or roles.strict or roles.contractions == "triton"
    return None if stays else parted_by(plan)


def _as_asked(plans: Sequence[Plan], name: str, roles: Roles) -> list[Plan] | DropRoles:
    """The plans with the roles that were asked for their axes."""
    wishes = wished_for(roles, name, {plan.name: plan.names for plan in plans})
    found = list(plans)
    for number, plan in enumerate(plans):
        if (asked := wishes.get(plan.name)) and not (plan.recorded and asked == plan.roles):
            other = attempt(functools.partial(_with_roles, plan, asked), plan.jaxpr, asked)
            if isinstance(other, DropRoles):
                return other
            assert isinstance(other, Plan)  # as nothing else costs less than roles
            found[number] = other
    return found
