"""Colours on a terminal."""

from __future__ import annotations

import io
import re

import pytest

from jaxpr2triton.cli.terminal import coloured, wants_colour

SOURCE = '''"""A header
of two lines."""
import triton.language as tl

@triton.jit
def kernel(x_ptr):  # row: grid 4
    for t in range(10):
        x = tl.load(x_ptr + t, mask=t < 3.5)

    return "ü", x
'''


def plain(text: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_change_no_letter() -> None:
    assert coloured(SOURCE) != SOURCE
    assert plain(coloured(SOURCE)) == SOURCE


def test_words_have_the_colours_of_their_kind() -> None:
    assert coloured("def f(x): return 1.5 # why\n") == (
        "\x1b[35mdef\x1b[0m \x1b[33mf\x1b[0m(x): \x1b[35mreturn\x1b[0m \x1b[36m1.5\x1b[0m \x1b[90m# why\x1b[0m\n"
    )
    assert coloured("y = tl.sum('a')\n") == "y = \x1b[33mtl\x1b[0m.sum(\x1b[32m'a'\x1b[0m)\n"


@pytest.mark.parametrize("text", ["", "\n", "x", "# only this", "a\n\n\n", "if x:\n\ty = 1\n"])
def test_odd_texts_survive(text: str) -> None:
    assert plain(coloured(text)) == text


@pytest.mark.parametrize("text", ["(", "'''open", "if x:\n  y\n z\n"])
def test_what_is_no_python_is_left_alone(text: str) -> None:
    assert coloured(text) == text


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())


@pytest.mark.parametrize(("value", "wanted"), [("1", False), ("anything", False), ("", True)])
def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", value)
    assert wants_colour(Terminal()) is wanted
