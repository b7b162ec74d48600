"""What all pages are made of: tables of markdown, and where their numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from bench.device.ending import dates
from bench.device.store import Results, Row
from jaxpr2triton.report.table import count

MISSING = "-"
AGAIN = "To make this page again: `scripts/device --pages`, which needs no device; `scripts/device` measures."

Columns = dict[str, list[str]]  # cells, by what stands above them
Each = TypeVar("Each")


def section(results: Results, device: str, rows: Sequence[Row]) -> list[str]:
    """A device, and the runs that these rows are of."""
    used = {row.run for row in rows}
    lines = ["", f"## {device}", ""]
    for name, run in results.runs.items():
        if name not in used:
            continue
        mine = [row for row in rows if row.run == name]
        versions = ", ".join(f"{what} {version}" for what, version in sorted(run.versions.items()))
        commit = f"commit {run.commit[:7]}" if run.commit else "commit not known"
        words = [
            run.date[:10],
            commit,
            versions,
            count(len(mine), "row"),
            f"from {run.taken_over}" * bool(run.taken_over),
        ]
        lines.append(f"- {'; '.join(word for word in words if word)}")
    return [*lines, ""]


def when(results: Results, row: Row) -> str:
    commit = results.runs[row.run].commit[:7]
    return f"{dates(results, [row])} {commit}".strip()


def not_measured(rows: Iterable[Row]) -> list[str]:
    found = [f"- {row.title}: {cell(row.problem)}" for row in rows if row.problem]
    return ["", "Not measured:", "", *found] if found else []


def columns(every: Sequence[Each], cells: Mapping[str, Callable[[Each], str]]) -> Columns:
    """What stands above a column, and what is in it."""
    return {name: [of_each(each) for each in every] for name, of_each in cells.items()}


def markdown(found: Columns) -> list[str]:
    """Columns of numbers on the right."""
    sides = ["---:" if _is_numbers(cells) else "---" for cells in found.values()]
    return [f"| {' | '.join(map(cell, line))} |" for line in (found, sides, *zip(*found.values(), strict=True))]


def _is_numbers(cells: Sequence[str]) -> bool:
    return any(cells) and all(each.replace(",", "").replace(".", "").isdigit() or each == MISSING for each in cells)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
