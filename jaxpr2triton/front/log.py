"""One line for each program that is planned, to the logger `jaxpr2triton`: why, how long it took, what it became.

planned step_bwd, new shapes of x: f32[8,64] after f32[4,64]; 7 kernels in 19 launches, 2 equations left to XLA;
0.41 s: normalize 0.05, partition 0.20, schedule 0.04, graph 0.05, emit 0.07
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxpr2triton.ir.form import form_of
from jaxpr2triton.ir.roles import Roles
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.policy import Policy
from jaxpr2triton.progress import LOGGER, Work
from jaxpr2triton.report.explain import short_type
from jaxpr2triton.report.table import count

REMEMBERED = 512  # names of programs
SHOWN = 3  # arguments that have changed


@dataclass(frozen=True)
class Asked:
    """A program that was planned, as far as a later one of the same name is compared with it."""

    function: str  # and where it is defined
    types: Mapping[str, str]  # of its arguments
    roles: Roles
    form: int
    policy: Policy  # of the target


_last: OrderedDict[str, Asked] = OrderedDict()  # by the names of programs
_lock = threading.Lock()


def log_plan(compiled: Compiled, jaxpr: Any, roles: Roles, work: Work) -> None:
    """Tell of a program that has just been planned."""
    why = _why(jaxpr, compiled, roles)
    seconds = ", ".join(f"{stage} {taken:.2f}" for stage, taken in work.seconds.items() if stage != "trace")
    if LOGGER.isEnabledFor(logging.INFO):
        LOGGER.info("planned %s, %s; %s; %.2f s: %s", compiled.name, why, _made(compiled), work.elapsed, seconds)


def _why(jaxpr: Any, compiled: Compiled, roles: Roles) -> str:
    """What is new about a program, compared with the last one of its name."""
    function = str(jaxpr.jaxpr.debug_info.func_src_info)
    types = dict(zip(argument_names(jaxpr), map(short_type, jaxpr.in_avals), strict=True))
    now = Asked(function, types, roles, hash(form_of(jaxpr)), compiled.policy)
    with _lock:
        before = _last.pop(compiled.name, None)
        _last[compiled.name] = now
        if len(_last) > REMEMBERED:
            _last.popitem(last=False)
    return "the first of this name" if before is None else _new(now, before)


def _new(now: Asked, before: Asked) -> str:
    """new types of x: f32[8,64] after f32[4,64]."""
    if now.function != before.function:
        return f"another function of this name: {now.function} after {before.function}"
    if now.types.keys() != before.types.keys():
        return "other arguments"
    pairs = ((name, new, before.types[name]) for name, new in now.types.items())
    changed = [f"{name}: {new} after {old}" for name, new, old in pairs if new != old]
    if changed:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        return f"new types of {', '.join(changed[:SHOWN])}{more}"
    if now.roles != before.roles:
        return "other roles"
    if now.form != before.form:
        return "other static arguments, or other values that it closes over"
    if now.policy != before.policy:
        return "other target"
    return "the same program, traced again"


def _made(compiled: Compiled) -> str:
    """7 kernels in 19 launches, 2 equations left to XLA."""
    kernels, left = len(set(compiled.kernels)), len(compiled.left_to_xla)
    launches = f" in {len(compiled.kernels)} launches" if kernels < len(compiled.kernels) else ""
    return count(kernels, "kernel") + launches + (f", {count(left, 'equation')} left to XLA" if left else "")
