"""Pages of what is right, of figures of the device, and of what the models missed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from bench.device.ending import micro, number
from bench.device.pages_markdown import AGAIN, MISSING, Columns, columns, markdown, not_measured, section, text, when
from bench.device.plot import Point, scatter
from bench.device.side_by_side import (
    MISSED,
    OURS,
    Estimate,
    Rows,
    Said,
    Standing,
    by_bound,
    newest,
    of_parts,
    said,
    title_of,
    worst_first,
)
from bench.device.store import Results, Row
from jaxpr2triton.report.table import count

PICTURE = "model-error.svg"
FIGURES = """What the device does by itself, beside the numbers of the models that stand for it: the median of all
repetitions, their least and their largest, and what is said, with what was measured for each 1 of it."""
RIGHT = """Results at small sizes, against a reference."""
ERRORS = """What the model of cycles says of kernels (`python -m jaxpr2triton explain`), beside how long the device was
busy with them; where that is not known, beside the call. The mean factor is 2 to the mean of
|log2(modelled / measured)|. Programs of which XLA computes a part are left out."""

# figures, and what is right


def figures(results: Results, by_device: Mapping[str, Rows]) -> str:
    lines = ["# Measured: figures of the device", ""]
    sections: list[str] = []
    for device, rows in by_device.items():
        every = newest(rows, "figure")
        if not every:
            continue
        found = said(every)
        off = sum(each.off for each in found)
        told = f"{off} of {count(len(found), 'number')} of the models off by more than a fifth."
        lines += [f"{device}: {count(len(every), 'figure')}; {told}", ""]
        sections += section(results, device, every) + markdown(_of_figures(results, [row for row in every if row.us]))
        sections += not_measured(every)
    return text([*lines, FIGURES, "", AGAIN, *sections])


def _of_figures(results: Results, rows: Sequence[Row]) -> Columns:
    told = [said([row]) for row in rows]
    return {
        "figure": [title_of(row) for row in rows],
        "measured": [number(statistics.median(row.us)) for row in rows],
        "unit": [row.unit for row in rows],
        "least to largest": [f"{number(min(row.us))} to {number(max(row.us))}" for row in rows],
        "said": [", ".join(f"{each.name} = {number(each.value)}" for each in of_row) or MISSING for of_row in told],
        "measured / said": [", ".join(map(_share, of_row)) or MISSING for of_row in told],
        "off": ["off" if any(each.off for each in of_row) else "" for of_row in told],
        "when": [when(results, row) for row in rows],
    }


def _share(each: Said) -> str:
    return f"{each.measured / each.value:.2f}" if each.value else MISSING


def right(results: Results, standing: Standing, by_device: Mapping[str, Rows]) -> str:
    lines = ["# Measured: what is right", ""]
    sections: list[str] = []
    for device, rows in by_device.items():
        every = newest(rows, "right")
        if not every:
            continue
        wrong = [row for row in every if row.wrong]
        right = sum(map(_is_right, every))
        problems = sum(bool(row.problem) for row in every)
        others = sum(row.way not in OURS for row in wrong)
        lines += [
            f"{device}: {right} right, {len(wrong) - others} wrong, {others} wrong of others, {problems} not measured.",
            "",
        ]
        sections += section(results, device, every) + markdown(_of_families(every))
        if wrong:
            sections += ["", "Wrong:", "", *markdown(_wrong(results, standing, wrong))]
        sections += not_measured(every)
    return text([*lines, RIGHT, "", AGAIN, *sections])


def _of_families(rows: Sequence[Row]) -> Columns:
    families = sorted({row.family for row in rows})
    return columns(
        [[row for row in rows if row.family == family] for family in families],
        {
            "family": lambda group: group[0].family,
            "right": lambda group: f"{sum(map(_is_right, group))}",
            "wrong": lambda group: f"{sum(row.wrong for row in group)}",
            "not measured": lambda group: f"{sum(bool(row.problem) for row in group)}",
            "the worst": lambda group: worst.title if (worst := _worst(group)) else MISSING,
            "error": lambda group: f"{worst.error:.1e}" if (worst := _worst(group)) else MISSING,
            "allowed": lambda group: f"{worst.allowed:.1e}" if (worst := _worst(group)) else MISSING,
        },
    )


def _is_right(row: Row) -> bool:
    return row.error is not None and row.allowed is not None and not row.wrong


def _worst(rows: Sequence[Row]) -> Row | None:
    return max((row for row in rows if _is_right(row) or row.wrong), key=_of_allowed, default=None)


def _of_allowed(row: Row) -> float:
    """Its error, for each 1 that it may be; what is no number is the worst."""
    error, allowed = row.error or 0.0, row.allowed or 0.0
    if math.isnan(error):
        return math.inf
    return error / allowed if allowed else math.inf if error else 0.0


def _wrong(results: Results, standing: Standing, rows: Sequence[Row]) -> Columns:
    return {
        "program": [row.title for row in rows],
        "error": [f"{row.error:.1e}" for row in rows],
        "allowed": [f"{row.allowed:.1e}" for row in rows],
        "measured": [when(results, row) for row in rows],
        "stale": [standing.marker(row) for row in rows],
    }


# what the model missed


def errors(results: Results, by_device: Mapping[str, Rows], modelled: Mapping[str, Sequence[Estimate]]) -> str:
    lines = ["# Modelled against measured", ""]
    sections: list[str] = []
    for device, found in modelled.items():
        if not found:
            continue
        missed = [each for each in found if each.factor > MISSED]
        left_out = of_parts(results, newest(by_device[device], "time"))
        told = f"of {count(len(found), 'program')} the model missed {len(missed)} by more than {MISSED}"
        lines += [f"{device}: {told}; {left_out} left out.", ""]
        sections += section(results, device, [each.row for each in found]) + markdown(_of_bounds(found))
        if missed:
            sections += ["", f"By more than {MISSED}:", "", *markdown(_of_missed(results, missed))]
    return text([*lines, ERRORS, "", f"![modelled against measured]({PICTURE})", "", AGAIN, *sections])


def _of_bounds(found: Sequence[Estimate]) -> Columns:
    groups = by_bound(found)
    return {
        "bound by": [group.bound or "unknown" for group in groups],
        "programs": [f"{len(group.all)}" for group in groups],
        "mean factor": [f"{group.mean_factor:.2f}" for group in groups],
        f"beyond {MISSED}": [f"{group.missed}" for group in groups],
        "modelled too long": [f"{sum(each.ratio > MISSED for each in group.all)}" for group in groups],
        "the worst": [f"{group.all[0].row.title}: {group.all[0].ratio:.2f}" for group in groups],
    }


def _of_missed(results: Results, found: Sequence[Estimate]) -> Columns:
    rows = worst_first(found)
    return {
        "program": [each.row.title for each in rows],
        "bound by": [each.bound or "unknown" for each in rows],
        "modelled µs": [micro(each.modelled) for each in rows],
        "measured µs": [micro(each.measured) for each in rows],
        "modelled / measured": [f"{each.ratio:.2f}" for each in rows],
        "which": [each.by for each in rows],
        "measured": [when(results, each.row) for each in rows],
    }


def picture(modelled: Mapping[str, Sequence[Estimate]]) -> str:
    several = sum(map(bool, modelled.values())) > 1
    return scatter(
        [
            Point(f"{each.row.title}{f' ({device})' if several else ''}", each.bound, each.modelled, each.measured)
            for device, found in modelled.items()
            for each in found
        ]
    )
