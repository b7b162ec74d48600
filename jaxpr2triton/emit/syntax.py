"""What is read and written of Python's syntax trees, of which the statements of a kernel are made."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, cast

from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.variables import names_in, nodes_of
from jaxpr2triton.ir.tree import Body

Tree = TypeVar("Tree")
NOTHING: Mapping[str, ast.expr] = MappingProxyType({})


@dataclass
class Fresh:
    """Names that are not used yet."""

    names: Names
    stored: Counter[str]  # how often the kernel assigns each
    used: set[str]

    @classmethod
    def beside(cls, body: Body, names: Names) -> Fresh:
        """Beside the names of a kernel."""
        return cls(names, stored_in(*body), {name.id for name in names_in(*body)})

    def __call__(self, wish: str) -> str:
        while (name := self.names.new(wish, 0)) in self.used:
            pass
        return name

    def moved_out(self, body: Body, own: Counter[str], outside: Set[str]) -> Body:
        """Steps of a loop that stand beside it: there a name would go on to stand for what is something else elsewhere.

        `own` says how often the loop assigns each name; those `outside` have a value before it.
        """
        elsewhere = {name for name in own if name not in outside and self.stored[name] > own[name]}
        asked = elsewhere & {name.id for name in names_in(*body)}
        instead = {name: self(re.sub(r"_\d+$", "", name)) for name in sorted(asked)}
        for name in names_in(*body):
            name.id = instead.get(name.id, name.id)
        return body


def is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def stored_in(*nodes: ast.AST) -> Counter[str]:
    """How often each name is assigned."""
    return Counter(name.id for name in names_in(*nodes) if is_store(name))


def has_values_after(*body: ast.stmt) -> set[str]:
    """The names that these statements give a value; not those of a loop's steps, which end with it."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case ast.For() | ast.While() if not is_in_text(statement):
                pass
            case ast.For(body=inner) | ast.While(body=inner):
                found |= has_values_after(*inner)
            case ast.If(body=inner, orelse=other):
                found |= has_values_after(*inner, *other)
            case _:
                found |= stored_in(statement).keys()
    return found


def is_in_text(loop: ast.For | ast.While) -> bool:
    """Whether its steps are written one after the other."""
    return isinstance(loop, ast.For) and next(calls(loop.iter, "static_range"), None) is not None


def calls(node: ast.AST, of: str | None = None) -> Iterator[ast.Call]:
    """Those of a function of Triton's, or all of them."""
    return (each for each in nodes_of(ast.Call, node) if of is None or _is_of_triton(each.func, of))


def _is_of_triton(function: ast.expr, name: str) -> bool:
    match function:
        case ast.Attribute(value=ast.Name("tl"), attr=attribute):
            return attribute == name
    return False


def copied(tree: Tree, known: Mapping[str, ast.expr] = NOTHING) -> Tree:
    """A copy of a tree; what is `known` stands in the place of its name, a copy of it at each."""
    if isinstance(tree, list):
        return cast(Tree, [copied(each, known) for each in tree])
    if isinstance(tree, ast.Name) and tree.id in known:
        return cast(Tree, copied(known[tree.id]))
    if not isinstance(tree, ast.AST) or not tree._fields:
        return tree
    copy = type(tree).__new__(type(tree))
    copy.__dict__.update({name: copied(value, known) for name, value in tree.__dict__.items()})
    return copy


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
