"""Names in statements."""

from __future__ import annotations

import ast

import pytest

from jaxpr2triton.emit.walks import names_in


@pytest.mark.parametrize(
    "text",
    [
        "a, b = b, f(a)[:, None]",
        "for t in range(n):\n    x = tl.load(p + t, mask=m, other=0.0)",
        "-a if b else (c, *d)",
    ],
)
def test_all_names_are_found(text: str) -> None:
    body = ast.parse(text).body
    found = names_in(*body)
    assert set(found) == {node for each in body for node in ast.walk(each) if isinstance(node, ast.Name)}
    assert len(found) == len(set(found))


def test_they_come_from_the_last_to_the_first() -> None:
    assert [name.id for name in names_in(ast.parse("a, b, c = d").body[0].targets[0])] == ["c", "b", "a"]
