"""Mistakes of this compiler: told from limits and from the user's own, kept as a reason, and reported once.

A stage that raises anything but what is meant for the user, or for the planning, has a mistake in it:

    KeyError: 'row'  →  XLA does what it concerns, a `BugWarning` says so, and `explain` gives it as the reason
                     →  KeyError: 'row', under `strict=True` and under `J2T_RAISE=1`
"""

from __future__ import annotations

import contextlib
import platform
import threading
import traceback
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import (
    BackendError,
    BugWarning,
    Jaxpr2TritonError,
    KernelRefused,
    Mistake,
    NotFusible,
    UserError,
    warn,
)
from jaxpr2triton.knobs import read_knobs
from jaxpr2triton.version import __version__

PACKAGE = Path(__file__).parent
# Whoever sees one of these was meant to; what this computer refuses to do is no mistake either.
MEANT = (UserError, NotFusible, BackendError, KernelRefused, BugWarning, OSError)

_told: set[tuple[str, ...]] = set()
_told_lock = threading.Lock()


def mistake_of(problem: Exception, eqns: Iterable[Any] = ()) -> Mistake:
    """The record of it; `eqns` are what it concerns. What is none is raised again, and under J2T_RAISE=1 all are."""
    if isinstance(problem, MEANT) or read_knobs().raise_:
        raise problem
    text = problem.what if isinstance(problem, Jaxpr2TritonError) else str(problem)
    what = ": ".join([type(problem).__name__, *text.splitlines()[:1]])
    place, eqn = _origin(problem.__traceback__)
    frames = (user_frame(each) for each in ([eqn] if eqn is not None else []) + list(eqns))
    where = next((str(frame) for frame in frames if frame is not None), "")
    traceback.clear_frames(problem.__traceback__)  # the record may outlive what is being compiled
    return Mistake(problem, what, place, where)


def _origin(trace: TracebackType | None) -> tuple[str, Any]:
    """The innermost line of this package that an exception came through, and the innermost equation there."""
    place, eqn = "an unknown line", None
    for frame, line in traceback.walk_tb(trace):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            place = f"{file.relative_to(PACKAGE.parent)}:{line}"
            found = frame.f_locals.get("eqn")
            eqn = found if hasattr(found, "source_info") else eqn
    return place, eqn


def message(mistake: Mistake, name: str, instead: str) -> str:
    """What the user is told: that it is our bug, what and where, what happens instead, and how to report it."""
    versions = [f"jaxpr2triton {__version__}", f"jax {jax.__version__}"]
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions.append(f"triton {metadata.version('triton')}")
    lines = [
        f"a bug in jaxpr2triton, in program {name}: {mistake.what}",
        f"  in   {mistake.place}",
        *([f"  at   {mistake.where}"] if mistake.where else []),
        f"  The results are right: {instead}.",
        "  Please report it with this message, the function or its jaxpr (`jax.make_jaxpr`), and the traceback that",
        f"  J2T_RAISE=1 shows. This is {', '.join(versions)}, Python {platform.python_version()}.",
    ]
    return "\n".join(lines)


def tell(mistake: Mistake, name: str, instead: str) -> None:
    """One warning for each program and place."""
    key = (name, mistake.what, mistake.place, mistake.where)
    with _told_lock:
        if key in _told:
            return
        _told.add(key)
    warn(message(mistake, name, instead), BugWarning)


def raise_with_context(mistake: Mistake, name: str) -> None:
    """The exception itself, as `strict=True` wants it, with a note of what it was about."""
    note = message(mistake, name, "drop strict=True, and XLA does what it concerns")
    if note not in getattr(mistake.problem, "__notes__", ()):
        mistake.problem.add_note(note)
    raise mistake.problem


@contextlib.contextmanager
def instead_of(problem: Exception, name: str, strict: bool, instead: str) -> Iterator[None]:
    """For the other way to what a mistake kept us from; if that one fails too, it is the user's program that is wrong.

    try:
        halves = linearize(jaxpr)
    except Exception as problem:
        with instead_of(problem, name, strict, "JAX differentiates it"):
            return jax.jvp(...)
    """
    mistake = mistake_of(problem)
    if strict:
        raise problem
    try:
        yield
    except Exception as theirs:
        raise theirs from None
    tell(mistake, name, instead)
