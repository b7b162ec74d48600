"""Walks through the trees of kernels: the names in them, the blocks in them, copies of them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, cast

from jaxpr2triton.emit.names import Names
from jaxpr2triton.ir.tree import Body, Pointer

Node = TypeVar("Node", bound=ast.AST)
Tree = TypeVar("Tree")
Loop = ast.For | ast.While
NOTHING: Mapping[str, ast.expr] = MappingProxyType({})


def names_in(*nodes: ast.AST) -> list[ast.Name]:
    """All names in statements or expressions; `ast.walk` finds them as well, in ten times the time."""
    found: list[ast.Name] = []
    stack: list[Any] = [*nodes]
    while stack:
        node = stack.pop()
        kind = node.__class__
        if kind is ast.Name or kind is Pointer:
            found.append(node)
        elif kind is list:
            stack.extend(node)
        else:
            stack.extend(_BELOW[kind](node))
    return found


def nodes_of(kind: type[Node], *nodes: ast.AST) -> list[Node]:
    """All expressions or statements of a kind, in the order of `ast.walk`."""
    found: list[Any] = [*nodes]
    for node in found:
        for below in _BELOW[node.__class__](node):
            if below.__class__ is list:
                found += below
            else:
                found.append(below)
    return [node for node in found if isinstance(node, kind)]


WITHOUT_NAMES = frozenset({"ctx", "op", "ops", "id", "attr", "kind", "type_comment", "arg"})


class _Below(dict[type, Callable[[Any], Sequence[Any]]]):
    """What reads the fields of each kind of node in which there may be names; none of what is no node."""

    def __missing__(self, kind: type) -> Callable[[Any], Sequence[Any]]:
        fields = kind._fields if issubclass(kind, ast.AST) and kind is not ast.Constant else ()
        named = [field for field in fields if field not in WITHOUT_NAMES]
        if len(named) > 1:
            self[kind] = attrgetter(*named)
        else:
            self[kind] = (lambda node: (getattr(node, named[0]),)) if named else (lambda node: ())
        return self[kind]


_BELOW = _Below()


@dataclass
class Fresh:
    """Names that nothing in a kernel has yet."""

    names: Names
    stored: Counter[str]  # how often the kernel assigns each

    @classmethod
    def beside(cls, body: Body, names: Names) -> Fresh:
        """Beside the names of a kernel, which are these."""
        return cls(names, stored_in(*body))

    def __call__(self, wish: str) -> str:
        return self.names.new(wish, 0)

    def moved_out(self, body: Body, own: Counter[str], outside: Set[str]) -> Body:
        """Steps of a loop that stand beside it: there a name would go on to stand for what is something else elsewhere.

        `own` says how often the loop assigns each name; those `outside` have a value before it.
        """
        elsewhere = {name for name in own if name not in outside and self.stored[name] > own[name]}
        asked = elsewhere & {name.id for name in names_in(*body)}
        instead = {name: self(self.names.wish(name)) for name in sorted(asked)}
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
        blocks = blocks_of(statement)
        if not blocks:
            found |= stored_in(statement).keys()
        elif isinstance(statement, ast.If) or is_in_text(statement):
            found = found.union(*(has_values_after(*block) for block in blocks))
    return found


def is_in_text(loop: ast.AST) -> bool:
    """Whether it is a loop whose steps are written one after the other."""
    return isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and function_of(loop.iter) == "static_range"


def function_of(call: ast.Call) -> str:
    """`load` of `tl.load(…)`, `to` of `x.to(…)`, `range`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def calls(node: ast.AST, of: str | None = None) -> Iterator[ast.Call]:
    """Those of a function of Triton's, or all of them."""
    return (each for each in nodes_of(ast.Call, node) if of is None or function_of(each) == of)


def blocks_of(statement: ast.stmt) -> list[Body]:
    """The statements within it."""
    match statement:
        case ast.For(body=inner) | ast.While(body=inner):
            return [inner]
        case ast.If(body=inner, orelse=other):
            return [inner, other]
    return []


def beside_loops(
    body: Body, beside: Callable[[Loop, Counter[str], Set[str]], tuple[Body, Body]], outside: Set[str] = frozenset()
) -> Body:
    """The statements of a block, with what stands before and after each loop from now on, those within it first.

    Of a loop that is how often it assigns each name, and the names that have a value before it, as those `outside`.
    """
    found: Body = []
    defined = set(outside)
    for statement in body:
        own = stored_in(statement)
        for block in blocks_of(statement):
            block[:] = beside_loops(block, beside, defined)
        before, after = beside(statement, own, defined) if isinstance(statement, Loop) else ([], [])
        found += [*before, statement, *after]
        defined |= has_values_after(*before, statement)
    return found


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


class Replaced(ast.NodeTransformer):
    def __init__(self, by: Callable[[ast.AST], ast.expr | None]) -> None:
        self.by = by

    def visit(self, node: ast.AST) -> ast.AST:
        return self.by(node) or self.generic_visit(node)

    def statement(self, node: ast.stmt) -> ast.stmt:
        return cast(ast.stmt, self.visit(node))
