"""The variables of a kernel as a reader wants them: no copy that need not be, and names counted from the top.

    scaled = sigmoid(o) * tanh(c)         h = sigmoid(o) * tanh(c)
    tl.store(ys_ptr + t * 8 + k, h)   →   ...
    h = scaled

Lines that compute the same of the same values become one, and lanes of one size have one variable, whatever the axis
(elsewhere: common subexpressions). Then two variables become one where a copy joins them, unless one of them gets a
value while another value, that of the other one, is still wanted (elsewhere: copy coalescing, by interference).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from jaxpr2triton.emit.names import Names

Body = list[ast.stmt]


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
        return self if self.joined is None else self.joined.root


def tidy(body: Body, names: Names, fixed: Set[str], alike: Mapping[str, str], changing: Set[str]) -> Body:
    """The statements without needless copies and equal lines, and with fresh names.

    `fixed` are the names that stay as they are, `alike` those that are other ones' too, and what pointers in `changing`
    point to is written by the kernel itself.
    """
    for name in (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)):
        name.id = alike.get(name.id, name.id)
    found = _Resolved(fixed)
    found.enter(body)
    body = _Equal(found.of, changing).block(body, {})
    found.of.update({name: variable.root for name, variable in found.of.items()})
    moves = list(_moves(body, found.of))
    movable = {variable for pair in moves for variable in pair}
    _find_clashes(body, found.of, movable)
    members = {variable: [variable] for variable in movable}
    for target, source in moves:
        one, other = sorted((target.root, source.root), key=lambda variable: (variable.depth, variable.number))
        if one is other or one.clashes & set(members[other]) or other.clashes & set(members[one]):
            continue
        other.joined = one
        one.clashes |= other.clashes
        members[one] += members.pop(other)
    wishes = {root: _wish(group, names) for root, group in members.items()}
    return without_idle_comments(_Renaming(found.of, wishes, names).block(body, 0))


def _wish(group: Sequence[Variable], names: Names) -> str:
    """The best name in a group: the user's own, and that of the step of a loop before that of its start."""
    best = max(group, key=lambda v: (names.rank(v.name), v.depth, v.number))
    return names.wish(best.name)


class _Resolved:
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
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and (variable := self.find(name.id)):
                self.of[name] = variable

    def writes(self, target: ast.expr) -> None:
        for name in ast.walk(target):
            if isinstance(name, ast.Name) and name.id not in self.fixed:
                if (variable := self.find(name.id)) is None:
                    variable = Variable(name.id, len(self.scopes) - 1, self.count)
                    self.scopes[-1][name.id] = variable
                    self.count += 1
                self.of[name] = variable

    def find(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)


Known = dict[str, tuple[list[Any], set[Any]]]  # text of a value → the targets that have it, and what it is made of


class _Equal:
    """Drops lines whose values are there already; whoever reads them reads the first ones."""

    def __init__(self, of: dict[ast.Name, Variable], changing: Set[str]) -> None:
        self.of, self.changing = of, changing
        self.counts = Counter(
            self.of[name] for name in of if isinstance(name.ctx, ast.Store)
        )  # how often each variable is assigned

    def block(self, body: Body, known: Known) -> Body:
        """The rest of a block; `known` is what has been computed before it, and becomes what is known at its end."""
        kept = []
        for statement in body:
            match statement:
                case ast.Assign():
                    if self.is_known(statement, known):
                        continue
                case ast.For() | ast.While() | ast.If():
                    changed = {self.of[n] for n in ast.walk(statement) if isinstance(n, ast.Name) and self.changes(n)}
                    _forget(known, changed | self.changing)
                    statement.body = self.block(statement.body, dict(known))
                    statement.orelse = self.block(statement.orelse, dict(known))
                case ast.Expr(value=ast.Call(args=[address, *_])):  # a store
                    _forget(known, {n.id for n in ast.walk(address) if isinstance(n, ast.Name)} & self.changing)
                case ast.Expr(value=ast.Call()):  # a barrier
                    _forget(known, self.changing)
            kept.append(statement)
        return kept

    def changes(self, name: ast.Name) -> bool:
        return name in self.of and isinstance(name.ctx, ast.Store) and self.counts[self.of[name]] > 1

    def is_known(self, statement: ast.Assign, known: Known) -> bool:
        """Whether the same value is there; if not, it is from now on."""
        names = [n for n in ast.walk(statement.value) if isinstance(n, ast.Name)]
        for name in names:
            if name in self.of:
                self.of[name] = self.of[name].root
                name.id = self.of[name].name
        targets = [target for target, _ in pairs(statement)]
        changed = {self.of[target] for target in targets if target in self.of and self.changes(target)}
        _forget(known, changed)
        if changed or isinstance(statement.value, ast.Name):
            return False
        text = self.text(statement.value)
        if not any(target in self.of for target in targets):  # an axis, under its own name
            text += ast.unparse(statement.targets[0])
        if text not in known:
            known[text] = targets, {self.of.get(name, name.id) for name in names}
            return False
        for target, first in zip(targets, known[text][0]):
            if target in self.of:
                self.of[target].joined = self.of[first]
        return True

    def text(self, value: ast.expr) -> str:
        """A value, with variables instead of names: those of one loop are free again in the next."""
        names = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
        return ast.unparse(value) + "".join(f" {self.of[n].number}" for n in names if n in self.of)


def _forget(known: Known, changed: Set[Any]) -> None:
    """Drop what is made of variables or pointers that change."""
    for text in [text for text, (_, parts) in known.items() if parts & changed]:
        del known[text]


def pairs(statement: ast.Assign) -> list[tuple[Any, Any]]:
    """Each name that is assigned, with its own value if it has one: `a, b = b, f(a)` has two."""
    (target,) = statement.targets
    if not isinstance(target, ast.Tuple):
        return [(target, statement.value)]
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [None] * len(target.elts)
    return list(zip(target.elts, values))


def _moves(body: Body, of: dict[ast.Name, Variable]) -> Iterator[tuple[Variable, Variable]]:
    """The copies: (the variable that is assigned, the one whose value it takes)."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target, value in pairs(statement):
                if isinstance(value, ast.Name) and target in of and value in of:
                    yield of[target], of[value]
        elif isinstance(statement, ast.For | ast.While | ast.If):
            yield from _moves(statement.body, of)
            yield from _moves(statement.orelse, of)


def _find_clashes(body: Body, of: dict[ast.Name, Variable], movable: Set[Variable]) -> None:
    """Fill in `clashes`, by going from the last statement to the first with the set of what is still wanted."""

    def read(node: ast.AST) -> set[Variable]:
        found = {of[n] for n in ast.walk(node) if isinstance(n, ast.Name) and n in of}
        return found & movable

    def before_all(block: Body, live: set[Variable]) -> set[Variable]:
        for statement in reversed(block):
            live = before(statement, live)
        return live

    def before(statement: ast.stmt, live: set[Variable]) -> set[Variable]:
        match statement:
            case ast.Assign(value=value):
                written = [(of.get(target), of.get(own)) for target, own in pairs(statement)]
                for variable, same in written:
                    if variable is not None and variable in movable:
                        for other in live - {v for v in (variable, same) if v is not None}:
                            variable.clashes.add(other)
                            other.clashes.add(variable)
                return (live - {variable for variable, _ in written if variable}) | read(value)
            case ast.If(test=head, body=inner, orelse=other):
                return before_all(inner, live) | before_all(other, live) | read(head)
            case ast.For(iter=head, body=inner) | ast.While(test=head, body=inner):
                live = live | read(head)
                while not (entered := before_all(inner, live)) <= live:
                    live = live | entered
                return live
        return live | read(statement)

    before_all(body, set())


class _Renaming(ast.NodeTransformer):
    """Writes every variable by its own name, numbered in the order in which a reader meets them."""

    def __init__(self, of: dict[ast.Name, Variable], wishes: dict[Variable, str], names: Names) -> None:
        self.of, self.wishes, self.old, self.names = of, wishes, names, names.anew()
        self.new: dict[Variable, str] = {}

    def block(self, body: Body, depth: int) -> Body:
        found = (self.statement(statement, depth) for statement in body)
        return [statement for statement in found if statement is not None]

    def statement(self, statement: ast.stmt, depth: int) -> ast.stmt | None:
        match statement:
            case ast.Assign():
                self.visit(statement.value)
                for target, _ in pairs(statement):
                    self.visit(target)
                return _without_identities(statement)
            case ast.For() | ast.While():
                self.visit(statement.iter if isinstance(statement, ast.For) else statement.test)
                self.names.enter()
                statement.body = self.block(statement.body, depth + 1)
                self.names.leave()
                return statement
            case ast.If():
                self.visit(statement.test)
                statement.body = self.block(statement.body, depth)
                statement.orelse = self.block(statement.orelse, depth)
                return _without_empty_side(statement)
        self.visit(statement)
        return statement

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node in self.of:
            variable = self.of[node].root
            if variable not in self.new:
                wish = self.wishes.get(variable) or self.old.wish(variable.name)
                self.new[variable] = self.names.new(wish, variable.depth)
            node.id = self.new[variable]
        return node


def _without_identities(statement: ast.Assign) -> ast.Assign | None:
    """`a, b = f(b), b` without the second one."""
    rest = [
        (target, value)
        for target, value in pairs(statement)
        if not (isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id)
    ]
    if len(rest) == len(pairs(statement)):
        return statement
    if not rest:
        return None
    targets, values = [target for target, _ in rest], [value for _, value in rest if value is not None]
    if len(rest) == 1:
        return ast.Assign([targets[0]], values[0], lineno=statement.lineno)
    return ast.Assign([ast.Tuple(targets, ast.Store())], ast.Tuple(values, ast.Load()), lineno=statement.lineno)


def _without_empty_side(statement: ast.If) -> ast.If | None:
    if _does_something(statement.body):
        statement.orelse = statement.orelse if _does_something(statement.orelse) else []
        return statement
    if not _does_something(statement.orelse):
        return None
    return ast.If(ast.UnaryOp(ast.Not(), statement.test), statement.orelse, [], lineno=statement.lineno)


def _does_something(body: Iterable[ast.stmt]) -> bool:
    return any(not is_comment(statement) for statement in body)


def without_idle_comments(body: Body) -> Body:
    """Of several comments one after the other only the last, and none twice in a row, nor at the end of a block."""
    kept: Body = []
    said = None
    for number, statement in enumerate(body):
        if is_comment(statement):
            follows = body[number + 1] if number + 1 < len(body) else statement
            if is_comment(follows) or ast.dump(statement) == said:
                continue
            said = ast.dump(statement)
        elif isinstance(statement, ast.For | ast.While | ast.If):
            statement.body = without_idle_comments(statement.body)
            statement.orelse = without_idle_comments(statement.orelse)
            said = None if not isinstance(statement, ast.If) else said
        kept.append(statement)
    return kept


def is_comment(statement: ast.stmt) -> bool:
    """A line of comment, which stands among the statements as a string."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False
