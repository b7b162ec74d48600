"""What a program keeps for its gradient, as a table: values that are alike together, and of very many the largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxpr2triton.report.table import count, paragraph, table

ROWS_SHOWN = 32
ALIKE = 3  # so many of one type, from one line, are one row

Facts = Mapping[str, Any]


def shown_residuals(title: str, facts: Sequence[Facts], width: int, own: int = 0) -> str:
    """norms keeps 2 values for its gradient: …, and a row for each kind of them.

    `own` are the bytes that kernels keep for themselves.
    """
    kept = f"{title} keeps {count(len(facts), 'value')} for its gradient"
    if not facts:
        return kept
    new = sum(fact["bytes"] for fact in facts if fact["source"] == "new")
    old = sum(fact["bytes"] for fact in facts) - new
    more = f", {own:,} bytes in buffers of the kernels' own" if own else ""
    head = paragraph(f"{kept}: {new:,} bytes written for it alone, {old:,} bytes of inputs and outputs{more}", width)
    return f"{head}\n{table(['value', 'is', 'type', 'bytes', 'at'], _rows(facts), width=width)}"


def _rows(facts: Sequence[Facts]) -> list[list[object]]:
    """scan0, scan1, scan2 of one type and line → `scan0 and 2 more`, with the bytes of all."""
    groups: dict[tuple[object, ...], list[Facts]] = {}
    for fact in facts:
        groups.setdefault((fact["source"], fact["type"], fact["where"]), []).append(fact)
    rows: list[list[Facts]] = []
    for group in groups.values():
        rows += [group] if len(group) >= ALIKE else [[fact] for fact in group]
    place = {id(fact): number for number, fact in enumerate(facts)}
    largest = sorted(rows, key=lambda row: (-_bytes(row), place[id(row[0])]))[:ROWS_SHOWN]
    shown = sorted(largest, key=lambda row: place[id(row[0])])
    others = len(facts) - sum(map(len, shown))
    last: list[list[object]] = []
    if others:
        last = [[f"{others:,} more", "", "", _bytes(facts) - sum(map(_bytes, shown)), ""]]
    return [[_name(row), row[0]["source"], row[0]["type"], _bytes(row), row[0]["where"]] for row in shown] + last


def _name(row: Sequence[Facts]) -> str:
    return str(row[0]["name"]) + (f" and {len(row) - 1:,} more" if len(row) > 1 else "")


def _bytes(facts: Sequence[Facts]) -> int:
    return sum(fact["bytes"] for fact in facts)
