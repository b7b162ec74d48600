"""What is read and written of Python's syntax trees, of which the statements of a kernel are made."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.variables import Body


@dataclass
class Fresh:
    """Names that are not used yet."""

    names: Names
    used: set[str]
    stored: Mapping[str, int] = field(default_factory=dict)  # how often the kernel assigns each

    def __call__(self, wish: str) -> str:
        while (name := self.names.new(wish, 0)) in self.used:
            pass
        return name


def is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def calls(node: ast.AST, of: str | None = None) -> Iterator[ast.Call]:
    """Those of a function of Triton's, or all of them."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and (of is None or ast.unparse(each.func) == f"tl.{of}"):
            yield each


def named_as(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def parsed_with(text: str, value: ast.expr | None = None) -> Body:
    """The statements, with a value in the place of the dots."""
    dots = Replaced(lambda node: value if isinstance(node, ast.Constant) and node.value is ... else None)
    return [dots.statement(statement) for statement in ast.parse(text).body]


class Replaced(ast.NodeTransformer):
    def __init__(self, by: Callable[[ast.AST], ast.expr | None]) -> None:
        self.by = by

    def visit(self, node: ast.AST) -> ast.AST:
        return self.by(node) or self.generic_visit(node)

    def statement(self, node: ast.stmt) -> ast.stmt:
        return cast(ast.stmt, self.visit(node))
