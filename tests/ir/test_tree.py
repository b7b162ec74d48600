"""Trees of kernels: templates with holes, and what is printed of them."""

from __future__ import annotations

import ast

import pytest

from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import Hex, as_expr, call, expr, is_atom, load, name, store, sum_of

TEXTS = [
    "a + b - c * d // e % f",
    "a - (b - c)",
    "a * (b // c) * (d + e)",
    "-(a + b)",
    "-a * b",
    "~a & b | c ^ d << 2 >> e",
    "(a | b) & c",
    "(a < b) & (c == d)",
    "(a == b) == c",
    "not a",
    "x[:, None] + y[None, :]",
    "x[0][1:]",
    "(x,)",
    "tl.load(x_ptr + t, mask=ok & (t < 3), other=0.0)",
    "(a + b).to(tl.float32).to(tl.int32, bitcast=True)",
    "tl.where(a > 0, float('-inf'), 1e-05)",
    "tl.dot(x, y, input_precision='ieee')",
    "tl.reshape(x, (4, 1))",
    "--a - -5",
    "True",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_printed_is_what_python_prints(text: str) -> None:
    assert printed(expr(text)) == text == ast.unparse(ast.parse(text, mode="eval"))


def test_holes() -> None:
    assert printed(expr("{} * {}", expr("a + b"), -2)) == "(a + b) * -2"
    assert printed(expr("{1} - {0}", "a", "tl.b")) == "tl.b - a"
    assert printed(expr("tl.reduce({0}, {axis}, {function})", ("x", "y"), axis=1, function="_add")) == (
        "tl.reduce((x, y), 1, _add)"
    )
    assert printed(expr("tl.full({}, {}, {})", (8,), Hex(0x10000), "tl.uint32")) == (
        "tl.full((8,), 0x00010000, tl.uint32)"
    )


def test_a_part_stays_the_tree_that_it_is() -> None:
    part = expr("a + b")
    made = expr("{0} * {0}", part)
    assert isinstance(made, ast.BinOp) and made.left is part and made.right is part
    assert expr("{}", part) is part


def test_terms_are_added_one_after_the_other() -> None:
    assert printed(sum_of("x_ptr", expr("a * 3 - b + 1"))) == "x_ptr + a * 3 - b + 1"
    assert printed(expr("{} + {}", "x_ptr", expr("a * 3 - b + 1"))) == "x_ptr + (a * 3 - b + 1)"


@pytest.mark.parametrize(
    "text, atom", [("a", True), ("a.b(c + d)[0]", True), ("(a + b).to(c)", False), ("-5", False), ("5", True)]
)
def test_is_atom(text: str, atom: bool) -> None:
    assert is_atom(expr(text)) == atom


def test_memory() -> None:
    assert printed(load(name("x_ptr"), None, as_expr(0))) == "tl.load(x_ptr)"
    assert printed(load(name("x_ptr"), name("ok"), as_expr(0))) == "tl.load(x_ptr, mask=ok, other=0)"
    assert printed(store(name("x_ptr"), call("f", 1, axis=0), name("ok")).value) == (
        "tl.store(x_ptr, f(1, axis=0), mask=ok)"
    )
