"""Colours for Python source on a terminal, with the standard library's own tokenizer."""

from __future__ import annotations

import builtins
import io
import keyword
import os
import token
import tokenize
from collections.abc import Iterator
from typing import TextIO

_RESET = "\x1b[0m"
_COMMENT, _KEYWORD, _NUMBER, _STRING, _NAME = "\x1b[90m", "\x1b[35m", "\x1b[36m", "\x1b[32m", "\x1b[33m"
_KNOWN = frozenset({"tl", "triton", "libdevice", *dir(builtins)})


def wants_colour(stream: TextIO) -> bool:
    """On a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(source: str) -> str:
    """The same text with terminal colours; text that is no Python comes back as it is."""
    lines = source.splitlines(keepends=True)
    pieces: list[str] = []
    row, column = 1, 0
    try:
        for (start_row, start), (end_row, end), colour in _spans(source):
            pieces += [_cut(lines, row, column, start_row, start), colour, _cut(lines, start_row, start, end_row, end)]
            pieces.append(_RESET)
            row, column = end_row, end
    except (tokenize.TokenError, SyntaxError):
        return source
    return "".join(pieces) + _cut(lines, row, column, len(lines) + 1, 0)


def _spans(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    previous = ""
    for word in tokenize.generate_tokens(io.StringIO(source).readline):
        colour = _colour(word, previous)
        if colour:
            yield word.start, word.end, colour
        previous = word.string


def _colour(word: tokenize.TokenInfo, previous: str) -> str:
    match word.type:
        case token.COMMENT:
            return _COMMENT
        case token.STRING:
            return _STRING
        case token.NUMBER:
            return _NUMBER
        case token.NAME if keyword.iskeyword(word.string):
            return _KEYWORD
        case token.NAME if previous in ("def", "@") or (previous != "." and word.string in _KNOWN):
            return _NAME
        case _:
            return ""


def _cut(lines: list[str], row: int, column: int, end_row: int, end: int) -> str:
    """The text from one place to another; rows count from 1, columns from 0."""
    if row > len(lines):
        return ""
    if row == end_row:
        return lines[row - 1][column:end]
    last = lines[end_row - 1][:end] if end_row <= len(lines) else ""
    return lines[row - 1][column:] + "".join(lines[row : end_row - 1]) + last
