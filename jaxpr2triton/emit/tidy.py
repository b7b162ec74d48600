"""The variables of a kernel as a reader wants them: no copy that need not be, and names counted from the top.

    scaled = sigmoid(o) * tanh(c)         h = sigmoid(o) * tanh(c)
    tl.store(ys_ptr + t * 8 + k, h)   →   ...
    h = scaled

Equal lines become one, and lanes of one size have one variable, whatever the axis. Then two variables become one where
a copy joins them, unless one of them gets a value while another value, that of the other one, is still wanted.
(Elsewhere: copy coalescing, by interference.)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from jaxpr2triton.emit.equal import Equal
from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.variables import Resolved, Variable, pairs
from jaxpr2triton.emit.walks import blocks_of, names_in
from jaxpr2triton.ir.tree import Body, Comment


def tidy(
    body: Body, names: Names, fixed: Set[str], alike: Mapping[str, str], changing: Set[str]
) -> tuple[Body, Names]:
    """The statements without needless copies and equal lines, and with fresh names, which are these.

    `fixed` are the names that stay as they are, `alike` those that are other ones' too, and what pointers in `changing`
    point to is written by the kernel itself.
    """
    for name in names_in(*body):
        name.id = alike.get(name.id, name.id)
    found = Resolved(fixed)
    found.enter(body)
    body = Equal(found.of, changing).block(body, {})
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
    renaming = _Renaming(found.of, wishes, names)
    return without_idle_comments(renaming.block(body, 0)), renaming.names


def _wish(group: Sequence[Variable], names: Names) -> str:
    """The best name in a group: the user's own, and that of the step of a loop before that of its start."""
    best = max(group, key=lambda v: (names.rank(v.name), v.depth, v.number))
    return names.wish(best.name)


def _moves(body: Body, of: dict[ast.Name, Variable]) -> Iterator[tuple[Variable, Variable]]:
    """The copies: (the variable that is assigned, the one whose value it takes)."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target, value in pairs(statement):
                if isinstance(value, ast.Name) and target in of and value in of:
                    yield of[target], of[value]
        for block in blocks_of(statement):
            yield from _moves(block, of)


def _find_clashes(body: Body, of: dict[ast.Name, Variable], movable: Set[Variable]) -> None:
    """Fill in `clashes`, by going from the last statement to the first with the set of what is still wanted."""

    def read(node: ast.AST) -> set[Variable]:
        return {of[n] for n in names_in(node) if n in of} & movable

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
                        variable.clashes.update(live - {variable, same})
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


class _Renaming:
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
                self.rename(statement.value)
                for target, _ in pairs(statement):
                    self.rename(target)
                return _without_identities(statement)
            case ast.For() | ast.While():
                self.rename(statement.iter if isinstance(statement, ast.For) else statement.test)
                self.names.enter()
                statement.body = self.block(statement.body, depth + 1)
                self.names.leave()
                return statement if isinstance(statement, ast.While) or _does_something(statement.body) else None
            case ast.If():
                self.rename(statement.test)
                statement.body = self.block(statement.body, depth)
                statement.orelse = self.block(statement.orelse, depth)
                return _without_empty_side(statement)
        self.rename(statement)
        return statement

    def rename(self, tree: ast.AST) -> None:
        for name in reversed(names_in(tree)):  # as they are written
            if name in self.of:
                variable = self.of[name].root
                if variable not in self.new:
                    wish = self.wishes.get(variable) or self.old.wish(variable.name)
                    self.new[variable] = self.names.new(wish, variable.depth)
                name.id = self.new[variable]


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
        return ast.Assign([targets[0]], values[0])
    return ast.Assign([ast.Tuple(targets, ast.Store())], ast.Tuple(values, ast.Load()))


def _without_empty_side(statement: ast.If) -> ast.If | None:
    if _does_something(statement.body):
        statement.orelse = statement.orelse if _does_something(statement.orelse) else []
        return statement
    if not _does_something(statement.orelse):
        return None
    return ast.If(ast.UnaryOp(ast.Not(), statement.test), statement.orelse, [])


def _does_something(body: Iterable[ast.stmt]) -> bool:
    return any(not isinstance(statement, Comment) for statement in body)


def without_idle_comments(body: Body) -> Body:
    """Of several comments one after the other only the last, and none twice in a row, nor at the end of a block."""
    kept: Body = []
    said = None
    for number, statement in enumerate(body):
        if isinstance(statement, Comment):
            follows = body[number + 1] if number + 1 < len(body) else statement
            if isinstance(follows, Comment) or statement.text == said:
                continue
            said = statement.text
        for block in blocks_of(statement):
            block[:] = without_idle_comments(block)
            said = said if isinstance(statement, ast.If) else None
        kept.append(statement)
    return kept
