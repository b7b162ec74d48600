"""The kernels of a program for a device: planned once in a process, its mistakes told, its leftovers refused."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from jaxpr2triton.collector import seldom_collected
from jaxpr2triton.errors import Mistake, NotFusible
from jaxpr2triton.front.log import log_plan
from jaxpr2triton.front.options import Settings
from jaxpr2triton.ir.kernel import Leftover
from jaxpr2triton.ir.roles import Roles
from jaxpr2triton.launch.call.devices import planned_for
from jaxpr2triton.mistakes import raise_with_context, tell
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.policy import Policy, policy_of
from jaxpr2triton.progress import LOGGER, working
from jaxpr2triton.report.reasons import leftovers_of
from jaxpr2triton.watching import Watched


class _Slot:
    """One compiled program, compiled by the first thread that asks for it while the others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.compiled: Compiled | None = None


@functools.lru_cache(maxsize=512)
def _slot(jaxpr: Any, name: str, roles: Roles, policy: Policy) -> _Slot:
    return _Slot()


LOWERED: Watched[Compiled] = Watched()  # programs


def compiled_program(jaxpr: Any, name: str, settings: Settings) -> Compiled:
    """Under `strict` nothing may stay with XLA."""
    policy, strict = policy_of(settings.target or planned_for()), settings.strict
    roles = replace(settings.roles, strict=strict, backend="auto", apart=())
    slot = _slot(jaxpr, name, roles, policy)
    with slot.lock:
        if slot.compiled is None:
            # a constant that is folded need not be a result
            with working(f"planning {name}") as work, seldom_collected(), jax.debug_nans(False), jax.debug_infs(False):
                slot.compiled = compile_jaxpr(jaxpr, name, roles, policy)
            log_plan(slot.compiled, jaxpr, roles, work)
        else:
            LOGGER.debug("%s was planned before", name)
    compiled = slot.compiled
    LOWERED.tell(compiled)
    for mistake in compiled.mistakes:
        if strict:
            raise_with_context(mistake, name)
        tell(mistake, name, _instead(compiled, mistake))
    if strict:
        _refuse(leftovers_of(compiled))
    return compiled


def _instead(compiled: Compiled, mistake: Mistake) -> str:
    if compiled.why_nothing:
        return "XLA runs the whole program"
    decided = compiled.decisions
    if mistake in (*decided.refused.values(), *compiled.lost.values(), decided.because):
        return "XLA runs what could not be compiled, and `explain` tells what that is"
    return "the kernels are made in another way"


def _refuse(leftovers: Sequence[Leftover]) -> None:
    """Under `strict=True`, the first equation that would stay with XLA is an error."""
    left = [leftover for leftover in leftovers if not leftover.is_fused]  # those are as strict as the program around
    if not left:
        return
    first, others = left[0], len(left) - 1
    more = f" (and {others} more)" if others else ""
    raise NotFusible(
        f"cannot compile `{first.equation}`: {first.why}{more}",
        where=first.where or None,
        hint="leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs",
    )
