"""Roles that were asked for by the names of axes: what they mean for a kernel, and which of them cannot be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jaxpr2triton import policy as numbers
from jaxpr2triton.errors import UserError
from jaxpr2triton.graph.nodes import Recurrence
from jaxpr2triton.graph.space import Space, size_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.roles import Asked, Roles
from jaxpr2triton.plan.schedule.draft import Draft, RoleRequest

LANES_AT_MOST = 1 << 20  # elements of a tile that Triton takes


def wished_for(roles: Roles, program: str, axes: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Role]]:
    """For each kernel of a program that something was asked for, the roles of its axes."""
    asked = roles.of_program(program)
    for each in asked:
        if roles.must_exist(each, program) and not finds(each, axes):
            raise unknown(each, axes)
    found: dict[str, dict[str, Role]] = {}
    for kernel, names in axes.items():
        for each in sorted(asked, key=lambda each: each.kernel != ""):  # what names the kernel goes last, and holds
            if each.kernel in ("", kernel) and each.axis in names:
                found.setdefault(kernel, {})[each.axis] = each.role
    return found


IN_ONE = "what is combined along it one by one is lanes of one tile"


def finds(asked: Asked, axes: Mapping[str, Sequence[str]]) -> bool:
    """Whether some kernel has that axis."""
    return any(asked.axis in names for kernel, names in axes.items() if asked.kernel in ("", kernel))


def unknown(asked: Asked, axes: Mapping[str, Sequence[str]]) -> UserError:
    there = "; ".join(f"{kernel} has {', '.join(names) or 'none'}" for kernel, names in axes.items())
    return UserError(f"roles: there is no axis {asked}: {there or 'there are no kernels'}")


def wishes_of(roles: Mapping[str, Role], draft: Draft, space: Space, kernel: str) -> tuple[RoleRequest, ...]:
    """The wishes about a kernel, whose axes have the names they have in this draft."""
    wishes = [RoleRequest(name, draft.made_of[name], role) for name, role in roles.items()]
    unrolled, most = 1, numbers.COMMON.one_by_one
    for wish in wishes:
        axes = originals(wish.axes, draft)
        reason = _why_not(wish, axes, space)
        if wish.role.is_unrolled:
            unrolled *= size_of(wish.axes)
            if not reason and unrolled > most:
                reason = f"that would be {unrolled} variables in place of one, and {most} are the most"
        if reason:
            raise UserError(
                f"roles: axis {wish.name} of kernel {kernel} cannot be {wish.role}: {reason}",
                hint=f"another role, or another axis of {_listed(draft)}",
            )
    return tuple(wishes)


def originals(axes: Iterable[Axis], draft: Draft) -> frozenset[Axis]:
    """The axes of the space that these are, or are pieces of."""
    whole = {piece: cut.axis for cut in draft.cuts for piece in (cut.unrolled, cut.rest)}
    return frozenset(whole.get(axis, axis) for axis in axes)


def _why_not(wish: RoleRequest, axes: frozenset[Axis], space: Space) -> str:
    loops = list(space.graph.of_kind(Recurrence))
    carried = frozenset().union(*(leaf.axes for loop in loops for leaf in loop.carried))
    repeated = frozenset(axis for loop in loops for axis in loop.bound & carried)
    if axes & space.steps:
        return "" if wish.role.is_sequential else "it counts the steps of a loop, which come one after the other"
    match wish.role:
        case Role.GRID:
            free = frozenset(space.axes) - space.inner
            return "" if axes <= free else "elements along it meet, so one program has to have all of them"
        case Role.LOOP:
            if axes & space.swept_axes:
                return IN_ONE
            return "a loop carries it from step to step, whole" if axes & (carried - space.steps) else ""
        case Role.UNROLL:
            if axes & space.swept_axes:
                return IN_ONE
            return "a loop runs once for each index of it" if axes & repeated else ""
        case Role.LANE:
            size = size_of(wish.axes)
            return f"a tile of {size} elements is too large" if size > LANES_AT_MOST else ""


def _listed(draft: Draft) -> str:
    kinds = ((draft.grid, Role.GRID), (draft.steps, Role.LOOP), (draft.inner, Role.LANE), (draft.unrolled, Role.UNROLL))
    return ", ".join(f"{axis.name} ({axis.size}, {role})" for axes, role in kinds for axis in axes)
