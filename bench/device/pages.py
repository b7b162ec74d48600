"""Pages of markdown, and a picture, of what was measured: the same file of results gives the same pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.device.ending import TOLD, micro
from bench.device.pages_checks import PICTURE, errors, figures, picture, right
from bench.device.pages_markdown import AGAIN, MISSING, Columns, columns, markdown, not_measured, section, text, when
from bench.device.side_by_side import OURS, SHORT, Rows, Standing, Work, estimates, mean, newest, works
from bench.device.store import Key, Results, Row
from jaxpr2triton.report.table import count

CALLS = f"""One call among many, in microseconds. `best` is the quickest of jit's variants. `best / ours` compares how
long the device was busy, where both calls are shorter than {SHORT:.0f} µs and that is known, and the calls otherwise.
`all ours` is `contractions="triton"`. Errors are relative, against `jax.jit` at the highest precision. `left` counts
equations that stay with XLA. Of a row that is `stale` today's kernels are others; `?`: that is not known."""


def pages(results: Results, standing: Standing) -> dict[str, str]:
    """Texts by file name; rehearsals are left out."""
    by_device = {device: _measured(results, device) for device in results.devices}
    by_device = {device: rows for device, rows in by_device.items() if rows}
    families = sorted({key[1] for rows in by_device.values() for key in rows if key[0] == "time"})
    found = {f"measured-{family}.md": _family(results, standing, by_device, family) for family in families}
    if any(key[0] == "figure" for rows in by_device.values() for key in rows):
        found["measured-figures.md"] = figures(results, by_device)
    if any(key[0] == "right" for rows in by_device.values() for key in rows):
        found["measured-right.md"] = right(results, standing, by_device)
    modelled = {device: list(estimates(results, newest(rows, "time"))) for device, rows in by_device.items()}
    if any(modelled.values()):
        found["model-error.md"] = errors(results, by_device, modelled)
        found[PICTURE] = picture(modelled)
    return found


def _measured(results: Results, device: str) -> dict[Key, list[Row]]:
    rows = results.of_device(device)
    real = {key: [row for row in of_key if not results.runs[row.run].rehearsed] for key, of_key in rows.items()}
    return {key: of_key for key, of_key in real.items() if of_key}


# times


def _family(results: Results, standing: Standing, by_device: Mapping[str, Rows], family: str) -> str:
    lines = [f"# Measured: {family}", ""]
    sections: list[str] = []
    for device, every in by_device.items():
        rows = {key: of_key for key, of_key in every.items() if key[:2] == ("time", family)}
        if not rows:
            continue
        found = works(rows)
        lines += [_summary(device, found), ""]
        sections += section(results, device, newest(rows))
        sections += [*markdown(_columns(results, standing, found)), *not_measured(newest(rows))]
    return text([*lines, CALLS, "", AGAIN, *sections])


def _summary(device: str, every: Sequence[Work]) -> str:
    compared = [work.best for work in every if work.best]
    if not compared:
        return f"{device}: nothing to compare in {count(len(every), 'program')}."
    quicker, slower = sum(each.quicker for each in compared), sum(each.slower for each in compared)
    gain = mean([each.gain for each in compared])
    others = len(every) - len(compared)
    alone = f" {others} {'has' if others == 1 else 'have'} nothing to be compared with." if others else ""
    counts = f"quicker than the best of jit's variants in {quicker}, slower in {slower}"
    same = len(compared) - quicker - slower
    return (
        f"{device}: of {count(len(compared), 'program')} ours is {counts}, and within 3 % in {same}; "
        f"the geometric mean of best / ours is {gain:.2f}.{alone}"
    )


def _columns(results: Results, standing: Standing, every: Sequence[Work]) -> Columns:
    """Those without which nothing is said are left out where they are empty."""
    ways = sorted({way for work in every for way in work.ways if not way.startswith("jit") and way not in OURS})
    always = {
        "program": _program,
        "pass": lambda work: work.any_row.kind,
        "best µs": lambda work: _micro(_best(work)),
        "which": lambda work: row.way if (row := _best(work)) else MISSING,
        "jit µs": _of_way("jit"),
        "ours µs": _of_way("ours"),
        "best / ours": lambda work: f"{best.gain:.2f}" if (best := work.best) else MISSING,
        "by": lambda work: best.by if (best := work.best) else MISSING,
    }
    optional = {
        "all ours µs": _of_way("all ours"),
        **{f"{TOLD.get(way, way)} µs": _of_way(way) for way in ways},
        "busy µs: best, ours, all": lambda work: _three(_best(work), work, _busy),
        "launches: best, ours, all": lambda work: _three(_best(work), work, _launches),
        "errors: jit, ours, all": lambda work: _three(work.ways.get("jit"), work, _error),
        "left": _left,
        "published µs": _published,
    }
    last = {
        "measured": lambda work: when(results, work.any_row),
        "stale": lambda work: standing.marker(work.any_row),
    }
    found = {name: cells for name, cells in columns(every, optional).items() if any(map(_says, cells))}
    return {**columns(every, always), **found, **columns(every, last)}


def _says(cell: str) -> bool:
    return bool(cell.strip("-, "))


def _program(work: Work) -> str:
    return ", ".join(filter(None, (work.any_row.program, _sizes(work.any_row))))


def _published(work: Work) -> str:
    row = next((row for row in work.ways.values() if row.published), None)
    return f"{micro(row.published or 0)}, {row.source}" if row else MISSING


def _of_way(way: str) -> Callable[[Work], str]:
    return lambda work: _micro(work.ways.get(way))


def _sizes(row: Row) -> str:
    return "" if row.sizes in ("small", "full") else row.sizes


def _best(work: Work) -> Row | None:
    """Of jit's variants; where there is nothing of ours, the quickest call."""
    if work.best:
        return work.best.other
    found = [row for way, row in work.ways.items() if way.startswith("jit") and row.us]
    return min(found, key=lambda row: row.us, default=None)


def _micro(row: Row | None) -> str:
    return MISSING if row is None or row.best is None else micro(row.best)


def _three(other: Row | None, work: Work, cell: Callable[[Row], str]) -> str:
    """Of another way, of ours and of all ours."""
    rows = [other, *(work.ways.get(way) for way in OURS)]
    return ", ".join(MISSING if row is None else cell(row) for row in rows)


def _busy(row: Row) -> str:
    return MISSING if row.busy is None else micro(row.busy)


def _launches(row: Row) -> str:
    return MISSING if row.launches is None else f"{row.launches:.0f}"


def _error(row: Row) -> str:
    return MISSING if row.error is None else f"{row.error:.0e}{' (wrong)' * row.wrong}"


def _left(work: Work) -> str:
    left = work.any_row.left
    return MISSING if left is None else f"{left}"
