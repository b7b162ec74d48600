"""The three kinds of error, and how each is worded.

A mistake in the user's code or arguments is a `UserError`; something this compiler does not cover yet is `NotFusible`
(raised only under `strict=True`); anything that should never happen is a `CompilerBug`. This one, like every exception
that nobody raised on purpose, becomes a `Mistake`: a reason to leave something to XLA, with a `BugWarning`. Under
`strict=True` and `J2T_RAISE=1` it is raised.

    NotFusible: cannot compile `b:f32[8] = sort[num_keys=1] a`: there is no rule for the primitive `sort`
      at   model.py:62 (loss)
      try  leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def _message(what: str, where: str | None, hint: str | None) -> str:
    lines = [what]
    if where:
        lines.append(f"  at   {where}")
    if hint:
        lines.append(f"  try  {hint}")
    return "\n".join(lines)


class Jaxpr2TritonError(Exception):
    """Base of every error that this package raises on purpose."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(_message(what, where, hint))
        self.what, self.where, self.hint = what, where, hint


class UserError(Jaxpr2TritonError, ValueError):
    """The arguments or the program are wrong; the message says how to mend them."""


class BackendError(Jaxpr2TritonError, RuntimeError):
    """The chosen backend cannot run on this machine."""


class NotFusible(Jaxpr2TritonError, TypeError):
    """`strict=True` was asked for, and an equation would be left to XLA."""


class CompilerBug(Jaxpr2TritonError, AssertionError):
    """An invariant of the compiler itself does not hold."""


class KernelRefused(Jaxpr2TritonError, RuntimeError):
    """Triton or the device cannot take a kernel: too many resources, or an internal error of Triton's."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """What went wrong in this compiler, as a reason for leaving something to XLA; never a limit of it."""

    problem: Exception
    what: str  # KeyError: 'row'
    place: str  # the line of this package
    where: str  # the user's line; empty if it is not known

    def __str__(self) -> str:
        return f"a mistake in jaxpr2triton ({self.what}, at {self.place})"


Reason = str | Mistake


class PlannedAgain(Exception):
    """Not an error: the program is cut into kernels once more, in another way."""


class LoopsRefused(PlannedAgain):
    """No kernel can hold these loops. They are known by the identity of their bodies; each has its reason."""

    def __init__(self, loops: Mapping[int, Reason]) -> None:
        super().__init__("; ".join(dict.fromkeys(map(str, loops.values()))))
        self.loops = loops

    @property
    def mistakes(self) -> list[Mistake]:
        return [reason for reason in dict.fromkeys(self.loops.values()) if isinstance(reason, Mistake)]


class RolesFail(PlannedAgain):
    """With the roles that a user asked for, a kernel cannot be made because of a mistake; without them it can."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


class WantsToKeep(PlannedAgain):
    """These variables, made by loops, are read when their loop is over: a kernel has to keep them in memory."""

    def __init__(
        self,
        variables: Sequence[Any],
        otherwise: LoopsRefused | None,
        dims: Mapping[Any, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(f"{len(variables)} results of loops have to be kept")
        self.variables = tuple(variables)
        self.otherwise = otherwise  # None: kernels can end there instead
        self.dims = dims or {}  # along which, where that is known


class WantsPieces(PlannedAgain):
    """These variables of loops' bodies are better made piece by piece, along these dimensions, in memory."""

    def __init__(self, dims: Mapping[Any, tuple[int, ...]]) -> None:
        super().__init__(f"{len(dims)} values of a step do not fit")
        self.dims = dims


class RunsTwice(PlannedAgain):
    """With what is kept by choice, some loop would be part of several kernels."""


class KeepsTooMuch(PlannedAgain):
    """These results of loops had better come into memory at the end of a kernel: keeping them takes programs away."""

    def __init__(self, variables: Sequence[Any]) -> None:
        super().__init__(f"{len(variables)} results of loops are kept at too high a price")
        self.variables = tuple(variables)


class KernelFallback(UserWarning):
    """A kernel was replaced by XLA; the numbers are right, the speed is not what was planned."""


class BugWarning(UserWarning):
    """There is a mistake in this compiler. What it concerns is left to XLA, so the numbers are right."""


class CacheWarning(UserWarning):
    """The folder of compiled kernels cannot be used; kernels are compiled again in each process."""


@dataclass(frozen=True)
class WhyNot:
    """A refusal that carries its reason: one sentence, no full stop, kept in the plan and printed by `explain`."""

    reason: str

    def __str__(self) -> str:
        return self.reason
