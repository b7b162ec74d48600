"""Rows of words, aligned."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "  ") -> str:
    """Columns two blanks apart; ints get thousands separators and stand on the right, words on the left."""
    texts = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(header))]
    right = [any(isinstance(row[column], int) for row in rows) for column in range(len(header))]

    def line(words: Sequence[str]) -> str:
        cells = [
            word.rjust(width) if is_right else word.ljust(width)
            for word, width, is_right in zip(words, widths, right, strict=True)
        ]
        return (indent + "  ".join(cells)).rstrip()

    return "\n".join(map(line, texts))


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def count(number: int, word: str, many: str = "") -> str:
    """1 kernel, 2 kernels."""
    return f"{number:,} {word if number == 1 else many or f'{word}s'}"
