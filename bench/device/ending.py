"""The last lines: what is wrong, what is slow, what the models missed, and what of all that is of older code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bench.device.side_by_side import (
    MISSED,
    OURS,
    REMOVED,
    STALE,
    UNKNOWN,
    Beside,
    Estimate,
    Rows,
    Standing,
    Work,
    by_bound,
    estimates,
    mean,
    newest,
    of_parts,
    said,
    title_of,
    works,
    works_before,
)
from bench.device.store import Key, Results, Row
from jaxpr2triton.report.table import count, first_of, shortened, table

WORST = 10  # rows named
NAMED = 3  # in a line
LONGEST = 160  # letters of a reason
EXCUSED: tuple[str, ...] = ("out of memory", "took more than", "not compiled in time")  # no mistake of ours
EXCUSED += ("cudnn_status_not_initialized", "cusolver internal error")  # libraries that the stand-in driver is without
TOLD = {"torch": "torch.compile"}
LATER = "nothing was measured now"
RATIOS = ("best / ours", "jit / ours")


def ending(results: Results, device: str, now: Standing) -> tuple[list[str], int]:
    """Of a device, lines for a person; 1 where something of ours is wrong or fails, else 0."""
    every = results.of_device(device)
    rows = {key: of_key for key, of_key in every.items() if now.has(key)}
    last = newest(rows)
    correct, wrong = _right(last, now)
    failures, failed = _problems(last)
    lines = [
        _head(results, device, now),
        *correct,
        *failures,
        *_slower(works(rows)),
        *_others(works(rows)),
        *_missed(results, newest(rows, "time")),
        *_off(newest(rows, "figure")),
        *_means(results, rows),
        *_published(last),
        *_stale(every, now),
    ]
    return lines, int(wrong or failed)


def _head(results: Results, device: str, now: Standing) -> str:
    run = results.runs.get(now.run)
    if run is None:
        return f"{device}: {LATER}"
    measured = sum(row.run == now.run for of_key in results.of_device(device).values() for row in of_key)
    words = [device, run.date[:10], f"commit {run.commit[:7]}" if run.commit else ""]
    rehearsed = "; rehearsed on the stand-in driver, whose times mean nothing" if run.rehearsed else ""
    return f"{', '.join(word for word in words if word)}: {count(measured, 'row')} measured{rehearsed}"


def _right(rows: Sequence[Row], now: Standing) -> tuple[list[str], bool]:
    """What is wrong of ours, and then what is wrong of others, which is nobody's fault here."""
    judged = [row for row in rows if row.error is not None and row.allowed is not None]
    unjudged = sum(row.error is not None and row.allowed is None for row in rows)
    mine, other = ([row for row in judged if row.wrong and (row.way in OURS) is ours] for ours in (True, False))
    right = sum(not row.wrong for row in judged)
    words = [f"{right:,} right", f"{len(mine):,} wrong"]
    words += [f"{len(other):,} wrong that {'is' if len(other) == 1 else 'are'} not ours"] if other else []
    words += [f"{unjudged:,} with an error of which nothing says how large it may be"] if unjudged else []
    cells = [
        [row.title, f"{row.family}, {row.sizes}".rstrip(", "), f"error {row.error:.1e}", f"allowed {row.allowed:.1e}"]
        + [now.marker(row)]
        for row in (*mine, *other)
    ]
    return [", ".join(words), *_rows(cells)], bool(mine)


def _problems(rows: Sequence[Row]) -> tuple[list[str], bool]:
    """Ours first; whether one of ours is a mistake."""
    failing = sorted((row for row in rows if row.problem), key=lambda row: row.way not in OURS)
    if not failing:
        return [], False
    cells = [[row.title, row.family, shortened(row.problem, LONGEST)] for row in failing]
    return [f"{count(len(failing), 'row')} could not be measured", *_rows(cells)], any(map(_is_mistake, failing))


def _is_mistake(row: Row) -> bool:
    excused = any(words in row.problem.lower() for words in EXCUSED)
    return row.way in OURS and row.aim in ("right", "time") and not excused


def _slower(every: Sequence[Work]) -> list[str]:
    compared = [work.best for work in every if work.best]
    if not compared:
        return []
    slower = sorted((each for each in compared if each.slower), key=lambda each: (each.gain, each.ours.title))
    lines = [
        f"{len(slower):,} of {count(len(compared), 'row')} slower than the best of jit's variants by more than 3 %"
    ]
    header = ["", "family", "ours µs", "best µs", "", "times", "compared", "the kernel that takes the time"]
    cells = [
        [title_of(each.ours), each.ours.family, micro(each.mine), micro(each.its), each.other.way]
        + [f"{1 / each.gain:.2f}", each.by, _longest_kernel(each.ours)]
        for each in slower[:WORST]
    ]
    return lines + _rows(cells, header, right=(2, 3, 5)) + _more(len(slower) - WORST)


def _longest_kernel(row: Row) -> str:
    if not row.kernels:
        return ""
    name, took = max(row.kernels.items(), key=lambda each: each[1])
    share = f", {took / row.busy:.0%} of what is busy" if row.busy else ""
    return f"{name} {micro(took)} µs{share}"


def _others(every: Sequence[Work]) -> list[str]:
    """torch.compile and libraries, each by itself."""
    ways = sorted({way for work in every for way in work.ways if way not in OURS and not way.startswith("jit")})
    lines = []
    for way in ways:
        compared = [each for work in every if (each := work.beside(way))]
        if not compared:
            continue
        slower = sorted((each for each in compared if each.slower), key=lambda each: each.gain)
        named = first_of(map(_times, slower), NAMED)
        lines.append(
            f"slower than {TOLD.get(way, way)} in {len(slower):,} of {len(compared):,}{': ' if named else ''}{named}"
        )
    return lines


def _times(each: Beside) -> str:
    return f"{title_of(each.ours)} ({1 / each.gain:.2f} times)"


def _missed(results: Results, rows: Sequence[Row]) -> list[str]:
    groups = by_bound(estimates(results, rows))
    if not groups:
        return []
    missed, every = sum(group.missed for group in groups), sum(len(group.all) for group in groups)
    lines = [f"{missed:,} of {count(every, 'row')} that the model missed by more than {MISSED}"]
    header = ["bound by", "rows", "mean factor", "missed", "the worst: modelled / measured µs"]
    cells = [
        [group.bound or "unknown", f"{len(group.all):,}", f"{group.mean_factor:.2f}", f"{group.missed:,}"]
        + ["; ".join(map(_estimate, [each for each in group.all if each.factor > MISSED][:NAMED]))]
        for group in groups
    ]
    left_out = of_parts(results, rows)
    notes = [f"  {count(left_out, 'row')} left out, of which XLA computes a part"] if left_out else []
    return lines + _rows(cells, header, right=(1, 2, 3)) + notes


def _estimate(each: Estimate) -> str:
    call = ", of a call" if each.by == "call" else ""
    return f"{each.row.title} {micro(each.modelled)} / {micro(each.measured)}{call}"


def _off(rows: Sequence[Row]) -> list[str]:
    every = said(rows)
    if not every:
        return []
    off = [each for each in every if each.off]
    lines = [f"{len(off):,} of {count(len(every), 'number')} of the models off by more than a fifth"]
    cells = [
        [title_of(each.row), number(each.measured), each.row.unit, f"{each.name} = {number(each.value)}"]
        for each in off
    ]
    return lines + _rows(cells, ["", "measured", "", "said"], right=(1,))


def _means(results: Results, rows: Rows) -> list[str]:
    """Geometric means, and of what was measured twice what they were."""
    now = [work for work in works(rows) if work.best]
    before = {work.any_row.key[:-1]: work for work in works_before(rows) if work.best}
    families = sorted({work.any_row.family for work in now})
    cells = [_means_of([work for work in now if work.any_row.family == family], before, results) for family in families]
    header = ["family", "programs", *RATIOS, "measured", "twice", *RATIOS, "before"]
    if not any(line[5] for line in cells):
        header, cells = header[:5], [line[:5] for line in cells]
    right = [column for column in (1, 2, 3, 5, 6, 7) if column < len(header)]
    return ["geometric means", *_rows(cells, header, right=right)] if cells else []


def _means_of(every: Sequence[Work], before: Mapping[Key, Work], results: Results) -> list[str]:
    """Of a family; all programs, and then those that were measured before, as they were and as they are."""
    again = [work for work in every if work.any_row.key[:-1] in before]
    then = [before[work.any_row.key[:-1]] for work in again]
    cells = [every[0].any_row.family, f"{len(every):,}", *_two(every), dates(results, _ours(every))]
    if not again:
        return [*cells, "", "", "", ""]
    changes = [f"{was} → {now}" for was, now in zip(_two(then), _two(again), strict=True)]
    return [*cells, f"{len(again):,}", *changes, dates(results, _ours(then))]


def _two(every: Sequence[Work]) -> list[str]:
    """Of the best of jit's variants and of jit by itself."""
    means = [mean([each.gain for work in every if (each := found(work))]) for found in (_best, _jit)]
    return ["-" if each is None else f"{each:.2f}" for each in means]


def _best(work: Work) -> Beside | None:
    return work.best


def _jit(work: Work) -> Beside | None:
    return work.beside("jit")


def _ours(every: Sequence[Work]) -> list[Row]:
    return [work.ours for work in every if work.ours]


def _published(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if row.published and row.best and row.way in OURS]
    if not found:
        return []
    cells = [
        [row.title, micro(row.best or 0), micro(row.published or 0), f"{(row.best or 0) / (row.published or 1):.2f}"]
        + [row.source]
        for row in found
    ]
    header = ["", "ours µs", "published µs", "times", "by"]
    return [f"{count(len(found), 'row')} beside published kernels", *_rows(cells, header, right=(1, 2, 3))]


def _stale(rows: Rows, now: Standing) -> list[str]:
    last = [row for row in newest(rows) if row.aim in ("right", "time")]
    markers = Counter(now.marker(row) for row in last if row.way in OURS)
    gone = [title_of(row) for row in newest(rows) if now.marker(row) == REMOVED]
    never = now.known - rows.keys()
    ours = markers[""] + markers[STALE] + markers[UNKNOWN]
    unknown = f"; of {markers[UNKNOWN]:,} that is not known" if markers[UNKNOWN] else ""
    lines = [f"{count(ours, 'row')} of ours: {markers[STALE]:,} stale, as today's kernels are others{unknown}"]
    if never:
        titles = (", ".join(filter(None, (*key[2:4], key[5]))) for key in sorted(never))
        lines.append(f"{count(len(never), 'row')} never measured: {first_of(titles, NAMED)}")
    if gone:
        programs = list(dict.fromkeys(gone))
        named = first_of(programs, NAMED)
        lines.append(f"{count(len(programs), 'program')} renamed or removed, {count(len(gone), 'row')} kept: {named}")
    return lines


# words


def micro(microseconds: float) -> str:
    """Three digits at least."""
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def dates(results: Results, rows: Iterable[Row]) -> str:
    """2026-11-25, or 2026-11-25 to 2026-11-27."""
    found = sorted({(row.date or results.runs[row.run].date)[:10] for row in rows} - {""})
    return " to ".join(dict.fromkeys([found[0], found[-1]])) if found else ""


def _rows(cells: Sequence[Sequence[str]], header: Sequence[str] = (), right: Sequence[int] = ()) -> list[str]:
    """Aligned; columns of numbers on the right. Nothing where there is no row."""
    if not cells:
        return []
    lines = [list(line) for line in (header, *cells) if line]
    for column in right:
        width = max(len(line[column]) for line in lines)
        for line in lines:
            line[column] = line[column].rjust(width)
    return table(lines[0], lines[1:]).splitlines()


def _more(others: int) -> list[str]:
    return [f"  and {others:,} more"] if others > 0 else []
