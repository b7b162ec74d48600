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

import functools
import sys
import sysconfig
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


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


class SourceRefused(KernelRefused):
    """Triton does not understand a kernel's source: a mistake of this compiler's, if no other form of it will do."""


class AssemblerTooOld(KernelRefused):
    """The assembler that JAX finds cannot read any kernel for the device."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """What went wrong in this compiler, as a reason for leaving something to XLA; never a limit of it."""

    problem: Exception
    what: str  # KeyError: 'row'
    place: str  # the line of this package
    where: str  # the user's line; empty if it is not known

    def __str__(self) -> str:
        return f"a mistake in jaxpr2triton ({self.what}, at {self.place})"


class KernelFallback(UserWarning):
    """A kernel was replaced by XLA; the numbers are right, the speed is not what was planned."""


class BugWarning(UserWarning):
    """There is a mistake in this compiler. What it concerns is left to XLA, so the numbers are right."""


class ScheduleWarning(UserWarning):
    """A schedule that was given is ignored: it is damaged, or of another kernel."""


class CacheWarning(UserWarning):
    """The folder of compiled kernels cannot be used; kernels are compiled again in each process."""


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the line of the user's that led to it: the innermost one outside of this and of JAX."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_of_others(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_of_others(file: str) -> bool:
    others, standard = _folders()
    return file.startswith((*others, "<frozen")) or (file.startswith(standard) and "-packages" not in file)


@functools.cache
def _folders() -> tuple[tuple[str, ...], str]:
    """Of this and of JAX, and of Python's own modules."""
    found = (find_spec(name) for name in ("jaxpr2triton", "jax", "jaxlib"))
    others = tuple(f"{Path(each.origin).parent}/" for each in found if each is not None and each.origin)
    return others, sysconfig.get_path("stdlib")


@dataclass(frozen=True)
class WhyNot:
    """A refusal that carries its reason: one sentence, no full stop, kept in the plan and printed by `explain`."""

    reason: str
    takes: str = ""  # what it would take to go without the refusal, where that is not plain from the reason

    def __str__(self) -> str:
        return self.reason


Reason = str | WhyNot | Mistake
