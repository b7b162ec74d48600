"""Copies, equal lines and names: before → after, and what may not be joined."""

from __future__ import annotations

import ast
import textwrap

import pytest

from jaxpr2triton.emit.layout import WIDTH, text_of
from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.tidy import tidy
from tests.emit.reading import body_of, clashes

OWN = {"h": 3, "x": 2, "state": 1}
PAIRS = {
    "a carry is written in place": (
        """
        state = tl.load(x_ptr)
        for t in range(9):
            scaled = state * 2.0
            state = scaled
        tl.store(out_ptr, state)
        """,
        """
        state = tl.load(x_ptr)
        for t in range(9):
            state = state * 2.0
        tl.store(out_ptr, state)
        """,
    ),
    "it has the user's name": (
        """
        state = tl.load(x_ptr)
        for t in range(9):
            h = state * 2.0
            state = h
        tl.store(out_ptr, state)
        """,
        """
        h = tl.load(x_ptr)
        for t in range(9):
            h = h * 2.0
        tl.store(out_ptr, h)
        """,
    ),
    "what is still wanted is not overwritten": (
        """
        state = tl.load(x_ptr)
        for t in range(9):
            h = state * 2.0
            tl.store(out_ptr + t, state)
            state = h
        """,
        """
        state = tl.load(x_ptr)
        for t in range(9):
            h = state * 2.0
            tl.store(out_ptr + t, state)
            state = h
        """,
    ),
    "a start that is read after the loop": (
        """
        x = tl.load(x_ptr)
        state = x
        for t in range(9):
            add = state + 1.0
            state = add
        tl.store(out_ptr, state * x)
        """,
        """
        x = tl.load(x_ptr)
        state = x
        for t in range(9):
            state = state + 1.0
        tl.store(out_ptr, state * x)
        """,
    ),
    "two that change places": (
        """
        a = tl.load(x_ptr)
        b = tl.load(x_ptr + 1)
        for t in range(9):
            a, b = b, a
        tl.store(out_ptr, a - b)
        """,
        """
        a = tl.load(x_ptr)
        b = tl.load(x_ptr + 1)
        for t in range(9):
            a, b = b, a
        tl.store(out_ptr, a - b)
        """,
    ),
    "a side that hands on what there is": (
        """
        x = tl.load(x_ptr)
        if x > 0:
            chosen = tl.exp(x)
        else:
            chosen = x
        tl.store(out_ptr, chosen)
        """,
        """
        x = tl.load(x_ptr)
        if x > 0:
            x = tl.exp(x)
        tl.store(out_ptr, x)
        """,
    ),
    "equal lines": (
        """
        x = tl.load(x_ptr)
        '# first'
        exp = tl.exp(x)
        for t in range(9):
            '# second'
            exp_2 = tl.exp(x)
            tl.store(out_ptr + t, exp + exp_2)
        """,
        """
        x = tl.load(x_ptr)
        # first
        exp = tl.exp(x)
        for t in range(9):
            # second
            tl.store(out_ptr + t, exp + exp)
        """,
    ),
    "lines that read what has changed": (
        """
        state = tl.load(x_ptr)
        exp = tl.exp(state)
        for t in range(9):
            exp_2 = tl.exp(state)
            state = exp_2 + exp
        tl.store(out_ptr, state)
        """,
        """
        state = tl.load(x_ptr)
        exp = tl.exp(state)
        for t in range(9):
            exp_2 = tl.exp(state)
            state = exp_2 + exp
        tl.store(out_ptr, state)
        """,
    ),
    "a buffer that has been written again": (
        """
        a = tl.load(kept_ptr)
        tl.store(kept_ptr, a + 1.0)
        b = tl.load(kept_ptr)
        tl.store(out_ptr, a + b)
        """,
        """
        a = tl.load(kept_ptr)
        tl.store(kept_ptr, a + 1.0)
        b = tl.load(kept_ptr)
        tl.store(out_ptr, a + b)
        """,
    ),
    "lanes of one size": (
        """
        k = tl.arange(0, 4)
        k1 = tl.arange(0, 4)
        a = tl.load(x_ptr + k)
        b = tl.load(x_ptr + k1)
        tl.store(out_ptr + k, a + b)
        """,
        """
        k = tl.arange(0, 4)
        a = tl.load(x_ptr + k)
        tl.store(out_ptr + k, a + a)
        """,
    ),
    "lanes of two sizes": (
        """
        k = tl.arange(0, 4)
        t = tl.arange(0, 4)
        k1 = tl.arange(0, 4)
        tl.store(out_ptr + k[:, None] * 4 + t[None, :] + k1, 1.0)
        """,
        """
        k = tl.arange(0, 4)
        t = tl.arange(0, 4)
        tl.store(out_ptr + k[:, None] * 4 + t[None, :] + k, 1.0)
        """,
    ),
    "names of one loop are free in the next": (
        """
        for t in range(9):
            a = tl.load(x_ptr + t)
            tl.store(out_ptr + t, a)
        for t in range(9):
            a = tl.load(x_ptr + 9 + t)
            b = a
            tl.store(out_ptr + t, b)
        """,
        """
        for t in range(9):
            a = tl.load(x_ptr + t)
            tl.store(out_ptr + t, a)
        for t in range(9):
            b = tl.load(x_ptr + 9 + t)
            tl.store(out_ptr + t, b)
        """,
    ),
}


def tidied(text: str) -> str:
    names = Names(["k", "k1", "t", "x_ptr", "out_ptr", "kept_ptr"], OWN)
    body = body_of(textwrap.dedent(text))
    found, _ = tidy(body, names, {"k", "k1", "t"}, {"k1": "k"}, {"kept_ptr"})
    return "\n".join(text_of(found, ""))


@pytest.mark.parametrize("title", PAIRS)
def test_before_and_after(title: str) -> None:
    before, after = PAIRS[title]
    expected = textwrap.dedent(after).strip()
    assert tidied(before) == expected
    assert tidied(tidied(before).replace("# first", "'# first'").replace("# second", "'# second'")) == expected


def test_the_readers_own_analysis() -> None:
    assert clashes(ast.parse("a = 1\nb = a\nwhile b:\n    b = b - a").body) == {frozenset({"a", "b"})}
    assert clashes(ast.parse("a = 1\nb = a\nwhile b:\n    b = b - 1").body) == set()


# layout

NAME = "a_long_name_of_a_value"
LONG = [
    f"x = tl.reduce({NAME}[:, None] * {NAME}_1[None, :] + {NAME}_2 * {NAME}_3 + ({NAME}_4 - {NAME}_5), 1, _add)",
    f"x = {NAME} * {NAME}_1 - ({NAME}_2 + {NAME}_3) * {NAME}_4 - ({NAME}_5 - {NAME}_6) / ({NAME}_7 + 1.0)",
    f"tl.store(out_ptr + {NAME}[:, None] * 1024 + {NAME}_1[None, :], {NAME}_2 + {NAME}_3, mask={NAME}_4[:, None])",
    f"x = ({NAME} > 0) & ({NAME}_1[None, :] + {NAME}_2[:, None] < 100) & ({NAME}_3 != {NAME}_4) & {NAME}_5",
    f"x = ({NAME} + {NAME}_1 * {NAME}_2 + {NAME}_3 * {NAME}_4 + {NAME}_5).to(tl.bfloat16).to(tl.float32)",
    f"x, y = {NAME} + {NAME}_1 * {NAME}_2 + {NAME}_3, {NAME}_4 * {NAME}_5 + {NAME}_6 - {NAME}_7",
    f"x, y = _threefry({NAME} ^ {NAME}_1, {NAME}_2 ^ {NAME}_3, {NAME}_4 + {NAME}_5, {NAME}_6.to(tl.uint32))",
    f"x = -({NAME} + {NAME}_1 * {NAME}_2 + {NAME}_3 * {NAME}_4 + {NAME}_5 + {NAME}_6)",
    f"x = tl.where({NAME} <= {NAME}_1, tl.where({NAME}_2, {NAME}_3 // 2 % 3, {NAME}_4 << 3 | {NAME}_5 >> 29), 0)",
]


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("depth", [1, 4])
def test_long_lines_mean_the_same(text: str, depth: int) -> None:
    body = ast.parse(text).body
    lines = text_of(body, "    " * depth)
    assert len(lines) > 1 and all(len(line) <= WIDTH for line in lines), lines
    again = ast.parse(textwrap.dedent("\n".join(lines)))
    assert ast.dump(again) == ast.dump(ast.Module(body, []))


@pytest.mark.parametrize("text", ["x_next = x_next[1:] + (tl.load({0}, mask=ok),)", "x = (tl.load({0}, mask=ok),)"])
def test_what_is_read_ahead_is_a_tuple_however_long_it_is(text: str) -> None:
    for length in range(1, WIDTH):
        body = ast.parse(text.format("x" * length)).body
        again = ast.parse(textwrap.dedent("\n".join(text_of(body, "    "))))
        assert ast.dump(again) == ast.dump(ast.Module(body, []))


def test_short_lines_stay_as_they_are() -> None:
    text = "x = a + b * (c - d)\nwhile x:\n    x = f(x)\nif x:\n    y = 1\nelse:\n    y = 2"
    assert text_of(ast.parse(text).body, "") == text.split("\n")
