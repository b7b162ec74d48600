"""Modelled against measured, as a picture: both axes logarithmic, a mark for each program, by what bounds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 710, 620
LEFT, TOP, SIDE = 76, 64, 480  # the square in which the marks are
RIGHT, BOTTOM = LEFT + SIDE, TOP + SIDE
BAND = 1.35
MANY = 150  # marks, which then are smaller
LABELS = (1, 2, 5)  # in each decade, where there are few

# the form of a mark around (0, 0), and its colours on light and on dark ground
MARKS = {
    "issue": ('<circle r="4.5"/>', "#0969da", "#58a6ff"),
    "memory": ('<path d="M-4-4H4V4H-4z"/>', "#bc4c00", "#f0883e"),
    "latency": ('<path d="M0-5.2 5 4H-5z"/>', "#1a7f37", "#3fb950"),
    "tensor": ('<path d="M0-5.6 5.6 0 0 5.6-5.6 0z"/>', "#8250df", "#bc8cff"),
    "unknown": ('<path d="M-4.5-2.5-2.5-4.5 0-2 2.5-4.5 4.5-2.5 2 0 4.5 2.5 2.5 4.5 0 2-2.5 4.5-4.5 2.5-2 0z"/>',)
    + ("#59636e", "#9198a1"),
}


@dataclass(frozen=True)
class Point:
    name: str  # of the program
    bound: str  # by issue, memory, latency or tensor
    modelled: float  # microseconds
    measured: float


def scatter(points: Sequence[Point]) -> str:
    """An SVG for light and dark pages; each mark says its program's name."""
    every = [point for point in points if point.modelled > 0 and point.measured > 0]
    low, high = _ends([value for point in every for value in (point.modelled, point.measured)])

    def place(value: float) -> float:
        return SIDE * (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))

    inside = sum(1 / BAND <= point.modelled / point.measured <= BAND for point in every)
    told = f"{len(every)} programs; the model is within a factor of {BAND} for {inside} of them."
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="t d">',
        '<title id="t">Modelled against measured microseconds</title>',
        f'<desc id="d">{told} A mark for each program, by what bounds it; on the diagonal the model is right.</desc>',
        _style(),
        _defs(0.75 if len(every) > MANY else 1.0),
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="ground"/>',
        f'<text x="{LEFT}" y="28" class="head">Modelled against measured</text>',
        f'<text x="{LEFT}" y="47">{told}</text>',
        *_axes(low, high, place),
        *_band(low, high, place),
        *_marks(every, place),
        *_legend(every),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Of both axes, a little beyond what is on them."""
    low, high = min(values, default=1.0) / 1.3, max(values, default=100.0) * 1.3
    return low, max(high, 10 * low)


def _style() -> str:
    light = [f".{bound}{{fill:{colour}}}" for bound, (_, colour, _) in MARKS.items()]
    dark = [f".{bound}{{fill:{colour}}}" for bound, (_, _, colour) in MARKS.items()]
    return (
        "<style>text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}"
        ".head{font-weight:600;font-size:16px}.ground{fill:#fff}.grid{stroke:#d1d9e0;stroke-width:1}"
        ".frame{fill:none;stroke:#818b98}.line{stroke:#59636e;stroke-width:1.5}.band{fill:#818b98;opacity:.16}"
        f"use{{stroke:#fff;stroke-width:.8;opacity:.85}}{''.join(light)}"
        "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.ground{fill:#0d1117}.grid{stroke:#2a313a}"
        f".frame{{stroke:#656c76}}.line{{stroke:#9198a1}}use{{stroke:#0d1117}}{''.join(dark)}}}</style>"
    )


def _defs(size: float) -> str:
    marks = "".join(f'<g id="{bound}" transform="scale({size:g})">{form}</g>' for bound, (form, _, _) in MARKS.items())
    return (
        f'<defs>{marks}<clipPath id="in"><rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/></clipPath></defs>'
    )


def _axes(low: float, high: float, place: Callable[[float], float]) -> Iterator[str]:
    for value in _labels(low, high):
        x, y = LEFT + place(value), BOTTOM - place(value)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}M{LEFT} {y:.1f}H{RIGHT}"/>'
        yield f'<text x="{x:.1f}" y="{BOTTOM + 19}" text-anchor="middle">{_label(value)}</text>'
        yield f'<text x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">{_label(value)}</text>'
    yield f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>'
    yield f'<text x="{LEFT + SIDE / 2:.0f}" y="{BOTTOM + 44}" text-anchor="middle">modelled, µs</text>'
    middle = TOP + SIDE // 2
    yield f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">measured, µs</text>'


def _labels(low: float, high: float) -> Iterator[float]:
    several = LABELS if high / low < 1000 else (1,)
    for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield from (value for step in several if low <= (value := step * 10.0**decade) <= high)


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _band(low: float, high: float, place: Callable[[float], float]) -> Iterator[str]:
    off = place(BAND * low)
    corners = [(LEFT, BOTTOM - off), (RIGHT, TOP - off), (RIGHT, TOP + off), (LEFT, BOTTOM + off)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
    yield f'<g clip-path="url(#in)"><path class="band" d="M{path}z"/>'
    yield f'<path class="line" d="M{LEFT} {BOTTOM}L{RIGHT} {TOP}"/></g>'


def _marks(points: Sequence[Point], place: Callable[[float], float]) -> Iterator[str]:
    for bound in MARKS:
        of_bound = [point for point in points if _mark(point) == bound]
        if not of_bound:
            continue
        yield f'<g class="{bound}">'
        for point in of_bound:
            x, y = LEFT + place(point.modelled), BOTTOM - place(point.measured)
            yield f'<use href="#{bound}" x="{x:.1f}" y="{y:.1f}"><title>{escape(point.name)}</title></use>'
        yield "</g>"


def _mark(point: Point) -> str:
    return point.bound if point.bound in MARKS else "unknown"


def _legend(points: Sequence[Point]) -> Iterator[str]:
    x, y = RIGHT + 22, TOP + 8
    yield f'<text x="{x - 6}" y="{y + 4}" class="head" style="font-size:13px">bound by</text>'
    for bound in MARKS:
        number = sum(_mark(point) == bound for point in points)
        if number:
            y += 24
            yield f'<g class="{bound}"><use href="#{bound}" x="{x}" y="{y}"/></g>'
            yield f'<text x="{x + 14}" y="{y + 4.5}">{bound} ({number})</text>'
    yield f'<path class="line" d="M{x - 7} {y + 34}h14"/><text x="{x + 14}" y="{y + 38.5}">equal</text>'
    yield f'<rect class="band" x="{x - 7}" y="{y + 51}" width="14" height="14"/>'
    yield f'<text x="{x + 14}" y="{y + 62.5}">within {BAND}</text>'
