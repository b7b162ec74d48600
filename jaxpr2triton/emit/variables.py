"""The variables of a kernel's statements: names, each within the block where it first gets a value."""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from jaxpr2triton.emit.walks import names_in
from jaxpr2triton.ir.tree import Body


@dataclass
class Variable:
    """One variable: a name within the block in which it is first given a value."""

    name: str
    depth: int  # of that block: the loops around it
    number: int  # in the order of their first values
    clashes: set[Variable] = field(default_factory=set)  # those that hold another value while this one is wanted
    joined: Variable | None = None  # the variable that it has become a part of

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @property
    def root(self) -> Variable:
        found = self
        while found.joined is not None:
            found = found.joined
        return found


class Resolved:
    """Which variable each name stands for; the names of one loop's body are free for others after it."""

    def __init__(self, fixed: Set[str]) -> None:
        self.fixed = fixed
        self.of: dict[ast.Name, Variable] = {}
        self.scopes: list[dict[str, Variable]] = []
        self.count = 0

    def enter(self, body: Body) -> None:
        self.scopes.append({})
        self.block(body)
        self.scopes.pop()

    def block(self, body: Body) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self.reads(value)
                    self.writes(target)
                case ast.For(target=target, iter=head, body=inner):
                    self.reads(head)
                    self.enter(inner)
                case ast.While(test=head, body=inner):
                    self.reads(head)
                    self.enter(inner)
                case ast.If(test=head, body=inner, orelse=other):
                    self.reads(head)
                    self.block(inner)
                    self.block(other)
                case _:
                    self.reads(statement)

    def reads(self, node: ast.AST) -> None:
        for name in names_in(node):
            if variable := self.find(name.id):
                self.of[name] = variable

    def writes(self, target: ast.expr) -> None:
        for name in reversed(names_in(target)):  # as they are written
            if name.id not in self.fixed:
                if (variable := self.find(name.id)) is None:
                    variable = Variable(name.id, len(self.scopes) - 1, self.count)
                    self.scopes[-1][name.id] = variable
                    self.count += 1
                self.of[name] = variable

    def find(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)


def pairs(statement: ast.Assign) -> list[tuple[Any, Any]]:
    """Each name that is assigned, with its own value if it has one: `a, b = b, f(a)` has two."""
    (target,) = statement.targets
    if not isinstance(target, ast.Tuple):
        return [(target, statement.value)]
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [None] * len(target.elts)
    return list(zip(target.elts, values))
