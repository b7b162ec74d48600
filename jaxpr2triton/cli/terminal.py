"""What a terminal can show: colours for Python source, lines of its width, letters of its encoding."""

from __future__ import annotations

import builtins
import codecs
import contextlib
import io
import keyword
import os
import shutil
import textwrap
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


def width_of(stream: TextIO) -> int | None:
    """How long a line may be, if anybody cares: a terminal does, and so does whoever sets COLUMNS."""
    if not (stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()):
        return None
    return max(shutil.get_terminal_size().columns, 40)


def folded(text: str, width: int | None) -> str:
    """The same text without lines that are longer than that; what is left of a line is indented."""
    return text if width is None else "\n".join(_fold(line, width) for line in text.splitlines())


def _fold(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_LOOK_ALIKES = {"→": "->", "…": "...", "─": "-", "×": "x", "’": "'"}


def _look_alike(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    letters = problem.object[problem.start : problem.end]
    shown = [_LOOK_ALIKES.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters]
    return "".join(shown), problem.end


codecs.register_error("look-alike", _look_alike)


@contextlib.contextmanager
def any_letter(*streams: TextIO | None) -> Iterator[None]:
    """What a stream's encoding has no letter for is written with others: → as ->."""
    texts = [each for each in streams if isinstance(each, io.TextIOWrapper)]
    before = [each.errors for each in texts]
    try:
        for each in texts:
            each.reconfigure(errors="look-alike")
        yield
    finally:
        for each, errors in zip(texts, before):
            if not each.closed:
                each.reconfigure(errors=errors)


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
