"""Where the time of a program goes, by an estimate: what moves, what is computed, steps of loops, and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.ir.cycles import Cycles
from jaxpr2triton.ir.kernel import Kernel, Leftover
from jaxpr2triton.pipeline.kernel_time import busy_of
from jaxpr2triton.policy import Policy
from jaxpr2triton.report.table import UNKNOWN, count, table

MANY = 12  # kernels from which on it is told, and those that are named


@dataclass(frozen=True)
class Spent:
    """All launches of a kernel, or of the equations that stay with XLA."""

    what: str
    where: str  # the user's line; empty if it is not known
    launches: int | None
    microseconds: float | None  # None where the trip count of a loop is data-dependent


def times_of(
    kernels: Mapping[Kernel, int], leftovers: Sequence[Leftover], policy: Policy, cycles: Mapping[Kernel, Cycles] | None
) -> list[Spent]:
    """One for each kernel, and one for what stays with XLA; `kernels` are with their launches."""
    found = []
    for kernel, launches in kernels.items():
        once = microseconds_of(kernel, policy) if cycles is None else _modelled(cycles[kernel], policy)
        found.append(Spent(kernel.name, place_of(kernel), launches, None if once is None else launches * once))
    if leftovers:
        every = [each.microseconds for each in leftovers]
        known = sum(time for time in every if time is not None)
        what = f"XLA, {count(len(leftovers), 'equation')}"
        found.append(Spent(what, "", None, None if None in every else known))
    return found


def place_of(kernel: Kernel) -> str:
    """model.py:12 and 3 other lines: the user's line of its result, and how many others are in it."""
    others = len(kernel.lines) - 1
    return "" if not kernel.lines else kernel.lines[-1] + (f" and {count(others, 'other line')}" if others else "")


def microseconds_of(kernel: Kernel, policy: Policy) -> float | None:
    """Of one launch; None where the trip count of a loop is data-dependent."""
    if kernel.steps is not None and not kernel.steps.known:
        return None
    return policy.products.launch_after_gap_us + busy_of(kernel, policy)


def _modelled(cycles: Cycles, policy: Policy) -> float | None:
    return None if cycles.microseconds is None else policy.products.launch_after_gap_us + cycles.microseconds


def shown_times(times: Sequence[Spent], is_modelled: bool, width: int) -> list[str]:
    """What takes longest first; nothing of programs of few kernels, whose table is short.

    where the time goes, estimated  launches     µs  share  computes
    loss_bwd_3                            12  120.4    31%  model.py:40 and 2 other lines
    """
    if len(times) <= MANY:
        return []
    total = sum(each.microseconds or 0 for each in times)
    longest = sorted(times, key=lambda each: -math.inf if each.microseconds is None else -each.microseconds)
    rows = [_row(each, total) for each in longest[:MANY]]
    others = longest[MANY:]
    if others:
        launches = sum(each.launches or 0 for each in others)
        rest = Spent(f"{len(others):,} more", "", launches, sum(each.microseconds or 0 for each in others))
        rows.append(_row(rest, total))
    everything = Spent("in all", "", sum(each.launches or 0 for each in times), total)
    rows.append(_row(everything, total))
    how = "modelled" if is_modelled else "estimated"
    header = [f"where the time goes, {how}", "launches", "µs", "share", "computes"]
    return ["", table(header, rows, width=width)]


def _row(spent: Spent, total: float) -> list[object]:
    if spent.microseconds is None:
        return [spent.what, spent.launches or "", UNKNOWN, "", spent.where]
    share = f"{100 * spent.microseconds / total:.0f}%" if total else ""
    return [spent.what, spent.launches or "", round(spent.microseconds), share, spent.where]
