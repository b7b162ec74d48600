"""What no step of a round waits for is computed for all of them at once, before the first one.

    for step in tl.static_range(4):                  peaks = ()
        x = x_now[step]                              for step in tl.static_range(4):
        if step < last:                                  x = x_now[step]
            peak = tl.reduce(x, 0, _maximum)     →       peaks = peaks + (tl.reduce(x, 0, _maximum),)
            c = f(c, peak)                           for step in tl.static_range(4):
                                                         if step < last:
                                                             c = f(c, peaks[step])

Lanes that meet wait for each other, and a step for the one before: with these meetings behind each other, all of it is
waited for. Compilers do not move them, at least not before an `if`.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from jaxpr2triton.emit.tidy import without_idle_comments
from jaxpr2triton.emit.walks import Fresh, Replaced, blocks_of, calls, copied, is_store, names_in, nodes_of
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import Access, Body, Comment, assign, call, expr, loop_of, name


def written_out(number: str, times: int, taken: Body, body: Body, given: Set[str], fresh: Fresh) -> Body:
    """The steps of a round, one after the other in the text; what none of them waits for before all of them."""
    parts = parted(body, given, fresh)
    if parts is None:
        return [_in_text(number, times, [*taken, *body])]
    several = {name: fresh(f"{name}_each") for name in parts.handed}
    begun: Body = [assign(held, ()) for held in several.values()]
    added = [assign(held, expr("{} + {}", held, (one,))) for one, held in several.items()]
    handed = [assign(one, expr("{}[{}]", held, number)) for one, held in several.items()]
    early = [*_asked_for(taken, parts.early), *parts.early, *added]
    rest = [*_asked_for(taken, parts.rest), *handed, *parts.rest]
    return [*begun, _in_text(number, times, early), _in_text(number, times, rest)]


def _in_text(number: str, times: int, body: Body) -> ast.For:
    return loop_of(number, call("tl.static_range", times), body)


def _asked_for(taken: Body, by: Body) -> Body:
    asked = {name.id for name in names_in(*by) if not is_store(name)}
    names = [(each, {name.id for name in names_in(each) if is_store(name)}) for each in taken]
    return [copied(each) for each, own in names if own & asked]


@dataclass(frozen=True)
class Parted:
    """A step in two parts, and what the second one reads of the first."""

    early: Body
    rest: Body
    handed: Sequence[str]


def parted(body: Body, given: Set[str], fresh: Fresh) -> Parted | None:
    """The part of a step in which lanes meet for what is `given` alone, where there is one.

    What has a value before the step, or gets two in it, is carried. Left together: what would hand on more than it is
    made of.
    """
    found = list(_made_of(body, given, fresh.stored))
    after = _after_meetings(found)
    early = _leading_to(after, found)
    if not early:
        return None
    rest = _without(body, {id(each) for each in early} - _wanted_again(body, early, after))
    first = without_idle_comments(_with_comments(body, {id(each) for each in early}))
    ready = {name for each in early if id(each) in after for name in _written(each)}
    changing = _stored_in(body) - given - {name for each in early for name in _written(each)}
    made, rest = _outlined(rest, ready, changing, fresh)
    asked = {name for statement in rest for name in _read(statement)}
    handed = sorted(asked & {*ready, *(name for each in made for name in _written(each))})
    used_up = given & {name for each in early for name in _read(each.value)} - asked
    return Parted([*first, *made], rest, handed) if 0 < len(handed) <= len(used_up) else None


def _outlined(rest: Body, ready: Set[str], changing: Set[str], fresh: Fresh) -> tuple[list[ast.Assign], Body]:
    """What the rest computes of what is early, as assignments, and a rest that reads them."""
    named: dict[str, tuple[str, ast.expr]] = {}

    def early(node: ast.AST) -> ast.expr | None:
        if not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call) or not _is_pure(node):
            return None
        names = _read(node)
        if names.isdisjoint(ready) or not names.isdisjoint(changing):
            return None
        text = printed(node)
        if text not in named:
            named[text] = fresh("ready"), node
        return name(named[text][0])

    replaced = Replaced(early)
    found = [replaced.statement(copied(statement)) for statement in rest]
    return [assign(ready, value) for ready, value in named.values()], found


def _stored_in(body: Body) -> set[str]:
    return {name.id for name in names_in(*body) if is_store(name)}


def _made_of(body: Body, given: Set[str], stored: Mapping[str, int]) -> Iterator[ast.Assign]:
    """What a step computes of what is given, and of what no step changes."""
    counts = Counter(name.id for name in names_in(*body) if is_store(name))
    known = set(given) - counts.keys()
    for each in _assignments(body):
        names = _written(each)
        once = all(counts[name] == 1 and stored.get(name) == 1 for name in names)
        if once and _is_pure(each.value) and all(name in known or name not in counts for name in _read(each.value)):
            known |= names
            yield each


def _assignments(body: Body) -> Iterator[ast.Assign]:
    """Those of a step, also where only some lanes or steps take them; not those of loops in it."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield statement
        for block in blocks_of(statement) if isinstance(statement, ast.If) else ():
            yield from _assignments(block)


def _after_meetings(assignments: Iterable[ast.Assign]) -> set[int]:
    """What lanes meet for, and what is made of that."""
    found: set[int] = set()
    names: set[str] = set()
    for each in assignments:
        if _meets(each.value) or not names.isdisjoint(_read(each.value)):
            found.add(id(each))
            names |= _written(each)
    return found


def _leading_to(wanted: Set[int], assignments: Sequence[ast.Assign]) -> list[ast.Assign]:
    found: list[ast.Assign] = []
    names: set[str] = set()
    for each in reversed(assignments):
        if id(each) in wanted or not names.isdisjoint(_written(each)):
            found.append(each)
            names |= _read(each.value)
    return found[::-1]


def _wanted_again(body: Body, early: Sequence[ast.Assign], after: Set[int]) -> set[int]:
    """What is made before lanes meet, and the rest of a step wants as well: it makes that again."""
    gone = {id(each) for each in early}
    asked = {name for statement in _without(body, gone) for name in _read(statement)}
    found: set[int] = set()
    for each in reversed(early):
        if id(each) not in after and not asked.isdisjoint(_written(each)):
            found.add(id(each))
            asked |= _read(each.value)
    return found


def _without(body: Body, gone: Set[int]) -> Body:
    """A step that leaves out these assignments."""
    found: Body = []
    for statement in body:
        if id(statement) in gone:
            continue
        if isinstance(statement, ast.If):
            statement = copy.copy(statement)
            statement.body = _without(statement.body, gone) or [ast.Pass()]
            statement.orelse = _without(statement.orelse, gone)
        found.append(statement)
    return found


def _with_comments(body: Body, chosen: Set[int]) -> Body:
    """These assignments, each after the comment that it stands under."""
    found: Body = []
    for statement in body:
        if isinstance(statement, ast.If):
            found += _with_comments([*statement.body, *statement.orelse], chosen)
        elif id(statement) in chosen or isinstance(statement, Comment):
            found.append(statement)
    return found


def _meets(value: ast.AST) -> bool:
    return next(calls(value, "reduce"), None) is not None


def _is_pure(value: ast.AST) -> bool:
    """Whether it may be computed where no step would have."""
    return not nodes_of(Access, value)


def _read(node: ast.AST) -> set[str]:
    return {name.id for name in names_in(node) if not is_store(name)}


def _written(assignment: ast.Assign) -> set[str]:
    return {name.id for target in assignment.targets for name in names_in(target)}
