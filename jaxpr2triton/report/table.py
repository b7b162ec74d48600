"""Rows of words, aligned, and no line longer than asked for."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100  # columns of a report
NARROWEST = 40
BOUND = "\u00a0"  # a blank that no line is folded at
UNKNOWN = "-"  # stands for a number that nobody knows
SHORTEST_CELL = 12  # a column of words is folded down to this


def report_width() -> int:
    """How long the lines of a report may be: what COLUMNS says, or 100, or less on a terminal that has less."""
    found = max(shutil.get_terminal_size((WIDTH, 0)).columns, NARROWEST)
    return found if os.environ.get("COLUMNS", "").isdecimal() else min(found, WIDTH)


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "  ", width: int | None = None
) -> str:
    """Columns two blanks apart; ints get thousands separators and stand on the right, words on the left.

    Where a line would be longer than `width`, the widest words are folded within their column.
    """
    texts = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(header))]
    right = [any(isinstance(row[column], int) for row in rows) for column in range(len(header))]
    if width is not None:
        longest = [max(_longest_word(line[column]) for line in texts) for column in range(len(header))]
        for least in (longest, [SHORTEST_CELL] * len(header)):  # words are cut where nothing else helps
            floors = [found if is_right else low for found, is_right, low in zip(widths, right, least)]
            _narrow(widths, floors, width - len(indent))

    def line(words: Sequence[str]) -> str:
        cells = [
            word.rjust(width) if is_right else word.ljust(width)
            for word, width, is_right in zip(words, widths, right, strict=True)
        ]
        return (indent + "  ".join(cells)).rstrip()

    return "\n".join(line(words) for cells in texts for words in _lines(cells, widths))


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """The widest columns become narrower, down to the `least` of each, until all fit."""
    while sum(widths) + 2 * (len(widths) - 1) > room:
        columns = [column for column, width in enumerate(widths) if width > least[column]]
        if not columns:
            return
        widths[max(columns, key=widths.__getitem__)] -= 1


def _lines(cells: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The lines of one row, folded: row: grid 8 | col: lane 4 → row: grid 8 |, col: lane 4."""
    folded = [[cell] if len(cell) <= width else _pieces(cell, width) for cell, width in zip(cells, widths)]
    height = max(map(len, folded), default=1)
    return [[lines[k] if k < len(lines) else "" for lines in folded] for k in range(height)]


def _pieces(cell: str, width: int) -> list[str]:
    """Lines of a cell: folded between what | separates where that is enough, else between words."""
    lines: list[str] = []
    for part in cell.replace(" | ", f"{BOUND}| ").split("| "):
        part = f"{part}|" if part.endswith(BOUND) else part
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines += textwrap.wrap(part, width)
    return [line.replace(BOUND, " ") for line in lines]


def _longest_word(text: str) -> int:
    return max(map(len, text.replace(" |", f"{BOUND}|").split(" ")))


def paragraph(text: str, width: int, *, indent: str = "") -> str:
    """One line, folded between words; what is left of it stands four blanks further in."""
    return (
        textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent + "    ", break_on_hyphens=False)
        or indent
    )


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def count(number: int, word: str, many: str = "") -> str:
    """1 kernel, 2 kernels."""
    return f"{number:,} {word if number == 1 else many or f'{word}s'}"


def first_of(words: Iterable[str], most: int, more: str = "") -> str:
    """`a, b, c and 4 more`, each word once; or `and 4 more places`, if `more` is "more place"."""
    every = list(dict.fromkeys(words))
    others = len(every) - most
    rest = f" and {count(others, more)}" if more else f" and {others:,} more"
    return ", ".join(every[:most]) + (rest if others > 0 else "")


def shortened(text: str, limit: int) -> str:
    """One line, cut off where it would be too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
