"""What a loop carries begins as a value of its own.

    x_2 = x                                x_2 = tl.where(True, x, x)
    for t in range(5):               →     for t in range(5):
        x, x_2 = x_2, f(x_2)                   x, x_2 = x_2, f(x_2)

Triton goes through a loop once before it writes it, and carries the variables that hold another value afterwards. Here
x would hold the value that it held before, that of x_2: it would not be carried, and keep for ever what it began with.
The compiler makes nothing of such a choice.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from jaxpr2triton.emit.variables import pairs
from jaxpr2triton.emit.walks import blocks_of, names_in
from jaxpr2triton.ir.tree import Body, expr

Copy = tuple[ast.Assign, int]  # a statement, and which of its pairs
Held = int  # a value, by a number


def with_distinct_starts(body: Body) -> Body:
    """The same statements, but for copies that would be taken for what they are copies of."""
    while copies := _First().alike(body):
        for statement, number in copies:
            _write_apart(statement, number)
    return body


def _write_apart(statement: ast.Assign, number: int) -> None:
    _, value = pairs(statement)[number]
    apart = expr("tl.where(True, {0}, {0})", value)
    if isinstance(statement.value, ast.Tuple):
        statement.value.elts[number] = apart
    else:
        statement.value = apart


@dataclass
class _First:
    """What variables hold in the first step of every loop; equal numbers are one value."""

    holds: dict[str, Held] = field(default_factory=dict)
    copied: dict[str, list[Copy]] = field(default_factory=dict)  # where a variable became equal to another one
    count: int = 0

    def alike(self, body: Body) -> list[Copy]:
        """The copies that the first loop carries of what it carries anyway; none if there is no such loop."""
        for statement in body:
            match statement:
                case ast.Assign():
                    self._assign(statement)
                case ast.If(body=inner, orelse=other):
                    if found := self._branch(inner, other):
                        return found
                case ast.For(body=inner) | ast.While(body=inner):
                    if found := self._carried_alike(inner) or self._loop(inner):
                        return found
        return []

    def _assign(self, statement: ast.Assign) -> None:
        now: dict[str, Held] = {}
        for number, (target, value) in enumerate(pairs(statement)):
            copy = isinstance(target, ast.Name) and isinstance(value, ast.Name)
            for name in names_in(target):
                now[name.id] = self._held(value.id) if copy else self._another()
                self.copied[name.id] = [(statement, number)] if copy else []
        self.holds |= now

    def _held(self, name: str) -> Held:
        if name not in self.holds:
            self.holds[name] = self._another()
        return self.holds[name]

    def _another(self) -> Held:
        self.count += 1
        return self.count

    def _branch(self, then: Body, other: Body) -> list[Copy]:
        before, copied = self.holds, self.copied
        ends = []
        for side in (then, other):
            self.holds, self.copied = dict(before), dict(copied)
            if found := self.alike(side):
                return found
            ends.append((self.holds, self.copied))
        (first, ours), (second, theirs) = ends
        same = {name for name in first.keys() & second.keys() if first[name] == second[name]}
        self.holds = {name: first[name] if name in same else self._another() for name in first.keys() | second.keys()}
        self.copied = {name: list(dict.fromkeys([*ours.get(name, []), *theirs.get(name, [])])) for name in same}
        return []

    def _loop(self, inner: Body) -> list[Copy]:
        before, copied = self.holds, self.copied
        self.holds, self.copied = dict(before), dict(copied)
        found = self.alike(inner)
        after = self.holds
        self.holds = {name: held if after[name] == held else self._another() for name, held in before.items()}
        self.copied = {name: copied.get(name, []) for name, held in before.items() if after[name] == held}
        return found

    def _carried_alike(self, inner: Body) -> list[Copy]:
        begun: dict[Held, list[str]] = {}
        for name in _assigned(inner):
            if name in self.holds:
                begun.setdefault(self.holds[name], []).append(name)
        found: list[Copy] = []
        for names in begun.values():
            copies = [self.copied.get(name, []) for name in names]
            originals = [each for each in copies if not each]
            others = [each for each in copies if each]
            found += [copy for each in (others if originals else others[1:]) for copy in each]
        return found


def _assigned(body: Body) -> list[str]:
    """The variables that these statements give a value, each once."""
    found: dict[str, None] = {}
    for statement in body:
        if isinstance(statement, ast.Assign):
            found |= {name.id: None for name in names_in(*statement.targets)}
        for block in blocks_of(statement):
            found |= dict.fromkeys(_assigned(block))
    return list(found)
