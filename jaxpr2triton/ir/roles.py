"""Roles that a user asks for, by the names of axes that `explain` shows.

{"k": "lane"}                 the axis `k` of every kernel that has one
{"rnn_bwd_0.k": "unroll"}     the axis `k` of one kernel
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from jaxpr2triton.errors import UserError
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.recorded import Recorded

Checkpoint = Literal["sqrt"] | int | None
Contractions = Literal["auto", "triton", "xla"]
Schedule = Literal["estimate", "compile"]
SQRT: Literal["sqrt"] = "sqrt"
CONTRACTIONS: tuple[Contractions, ...] = get_args(Contractions)
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
_KEY = re.compile(r"(?:\w+\.)?\w+")


@dataclass(frozen=True)
class Asked:
    """The role of one axis, in one kernel or in all that have such an axis."""

    kernel: str  # empty: in all of them
    axis: str
    role: Role

    def __str__(self) -> str:
        return f'"{self.kernel}.{self.axis}"' if self.kernel else f'"{self.axis}"'


@dataclass(frozen=True)
class Roles:
    """What was asked for a function, and for what JAX's transformations make of it."""

    function: str = ""  # the name of its own program
    asked: tuple[Asked, ...] = ()
    contractions: Contractions = "auto"  # whose kernels contractions are
    checkpoint: Checkpoint = None  # of how many steps of a loop a gradient keeps the state; None: of all
    exact_order: bool = False  # whether the steps of loops are taken one after the other, and all rows at once
    schedule: Schedule = "estimate"  # how the schedules of loops are compared
    strict: bool = False  # whether nothing may stay with XLA
    backend: str = "auto"  # what runs it, if that was asked for
    schedules: tuple[Recorded, ...] = ()  # of kernels, instead of searching for one
    apart: tuple[str, ...] = ()  # of a fused function inside another one: what it names otherwise than that one

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{each}: {each.role}' for each in self.asked)}}}"  # jaxprs print their parameters

    def of_program(self, name: str) -> tuple[Asked, ...]:
        """What concerns the kernels of one program, which are called like it, or numbered."""
        own = re.compile(rf"{re.escape(name)}(_\d+)*")
        return tuple(asked for asked in self.asked if not asked.kernel or own.fullmatch(asked.kernel))

    def must_exist(self, asked: Asked, name: str) -> bool:
        """Whether a program without that axis is a mistake; gradients and batches have axes of their own."""
        return bool(asked.kernel) or name == self.function


NO_ROLES = Roles()


def parse_roles(
    function: str,
    roles: Mapping[str, str] | None,
    contractions: Contractions = "auto",
    checkpoint: Checkpoint = None,
    exact_order: bool = False,
    schedule: Schedule = "estimate",
    backend: str = "auto",
    schedules: tuple[Recorded, ...] = (),
) -> Roles:
    """What a user wrote, checked as far as that goes without the kernels."""
    for word, said, known in (("contractions", contractions, CONTRACTIONS), ("schedule", schedule, SCHEDULES)):
        if said not in known:
            raise UserError(f"{word}={said!r} is not a choice", hint="one of " + ", ".join(known))
    if not isinstance(exact_order, bool):
        raise UserError(f"exact_order={exact_order!r} is not a choice", hint="True or False")
    if not (checkpoint is None or checkpoint == SQRT or (type(checkpoint) is int and checkpoint > 0)):
        hint = f'"{SQRT}", or of how many steps of a loop the state is kept'
        raise UserError(f"checkpoint={checkpoint!r} is not a choice", hint=hint)
    parsed = _parsed(function, roles)
    made = replace(parsed, contractions=contractions, checkpoint=checkpoint, exact_order=exact_order)
    made = replace(made, schedule=schedule, backend=backend, schedules=schedules)
    return parsed if made == parsed else made


def _parsed(function: str, roles: Mapping[str, str] | None) -> Roles:
    if roles is None:
        return NO_ROLES
    if not isinstance(roles, Mapping):
        axis, equals, role = roles.partition("=") if isinstance(roles, str) else ("", "", "")
        example = {axis: role} if equals else {"col": "lane"}
        raise UserError(f"roles={roles!r} is not a dict of axes and roles", hint=f"roles={example}")
    if not roles:
        return NO_ROLES
    return Roles(function, tuple(_asked(function, key, role) for key, role in roles.items()))


def _asked(function: str, key: str, role: str) -> Asked:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise UserError(
            f"roles: {key!r} is not the name of an axis", hint='"AXIS" or "KERNEL.AXIS", as explain shows them'
        )
    names = [each.value for each in Role]
    if not isinstance(role, str) or role not in names:
        raise UserError(f"roles: {role!r} is not a role", hint="one of " + ", ".join(names))
    kernel, _, axis = key.rpartition(".")
    if kernel and kernel != function and not kernel.startswith(f"{function}_"):
        raise UserError(f"roles: the kernels of {function} are called {function}…, so {kernel} is none of them")
    return Asked(kernel, axis, Role(role))
