"""What compiled kernels did on the machine, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.report.table import count, report_width, table


@dataclass(frozen=True)
class Found:
    """One fault of a compiled kernel."""

    line: int  # of the kernel's source
    user: str  # model.py:12; empty if that is not known
    what: str
    times: int


@dataclass(frozen=True)
class CompiledRun:
    """A kernel, over all inputs that were tried."""

    kernel: str
    runs: int
    instructions: Mapping[str, int]  # of warps, by kind
    sectors: int
    least_sectors: int
    bank_conflicts: int
    found: tuple[Found, ...] = ()


def show_compiled(target: str, runs: Sequence[CompiledRun]) -> str:
    """A table of what ran, and one of what was found."""
    lines = [f"compiled for {target}, and run with every access checked"]
    if not runs:
        return "\n".join([*lines, "  no kernel ran"])
    rows = [
        [each.kernel, each.runs, sum(each.instructions.values()), _commonest(each.instructions), _sectors(each)]
        + [each.bank_conflicts, len(each.found) or "none"]
        for each in runs
    ]
    header = ["kernel", "runs", "instructions", "most of them", "sectors", "bank conflicts", "findings"]
    lines.append(table(header, rows, width=report_width()))
    found = [[each.kernel, one.line, one.user, one.what, one.times] for each in runs for one in each.found]
    if found:
        lines.append(table(["kernel", "line", "computes", "what is wrong", "times"], found, width=report_width()))
    return "\n".join(lines)


def verdict_on_compiled(runs: Sequence[CompiledRun]) -> str:
    """Empty if nothing was found."""
    found = sum(len(each.found) for each in runs)
    kernels = sum(bool(each.found) for each in runs)
    return f"{count(found, 'FINDING')} in {count(kernels, 'compiled kernel')}" if found else ""


def _commonest(kinds: Mapping[str, int]) -> str:
    every = sum(kinds.values()) or 1
    return ", ".join(f"{kind} {100 * many // every}%" for kind, many in list(kinds.items())[:3])


def _sectors(run: CompiledRun) -> str:
    more = f" ({run.sectors / run.least_sectors:.1f} x the least)" if run.sectors > run.least_sectors else ""
    return f"{run.sectors:,}{more}"
