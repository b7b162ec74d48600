"""Data flow over what is made of each other: the nodes of a graph, the variables and equations of a jaxpr.

    d = f(b, c);  b = g(a);  c = h(a)      postorder([d], operands, done)          →   a, b, c, d
                                           sources([a, b, c, d], operands, [b])    →   {b: {b}, d: {b}}

Whoever asks says what the operands of a value are. Nothing recurses, so programs may be of any length, and a value that
is used often is looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var

Value = TypeVar("Value")
Node = TypeVar("Node", bound=Hashable)
Source = TypeVar("Source", bound=Hashable)
Fact = TypeVar("Fact")


def _itself(value: object) -> Hashable:
    return value


# -- from results to what they are made of -----------------------------------------------------------------------------


def postorder(
    tops: Iterable[Value],
    operands: Callable[[Value], Iterable[Value]],
    done: Container[Any],
    key: Callable[[Value], Hashable] = _itself,
) -> Iterator[Value]:
    """Yield each value that is not done, once, after all its operands; the caller adds it to `done` before the next.

    Values are known by their `key`.
    """
    stack = [*tops][::-1]
    opened: set[Hashable] = set()
    while stack:
        value = stack[-1]
        known = key(value)
        if known in done:
            stack.pop()
        elif known in opened:
            stack.pop()
            yield value
        else:
            opened.add(known)
            stack.extend([each for each in operands(value) if key(each) not in done][::-1])


def on_demand(
    top: Node,
    operands: Callable[[Node], Sequence[Node]],
    transfer: Callable[[Node, list[Fact]], Fact],
    known: dict[Node, Fact],
) -> Fact:
    """The fact of one value, from those of its operands; `known` gets the facts of all that it is made of."""
    for value in postorder([top], operands, known):
        known[value] = transfer(value, [known[each] for each in operands(value)])
    return known[top]


def reachable(
    tops: Iterable[Value],
    operands: Callable[[Value], Iterable[Value]],
    key: Callable[[Value], Hashable] = _itself,
) -> Iterator[Value]:
    """Yield each value once, before its operands, in the order in which they stand."""
    stack = [*tops][::-1]
    seen: set[Hashable] = set()
    while stack:
        value = stack.pop()
        if key(value) not in seen:
            seen.add(key(value))
            yield value
            stack.extend([*operands(value)][::-1])


# -- from operands to what is made of them -----------------------------------------------------------------------------


def forward(
    values: Iterable[Node],
    operands: Callable[[Node], Iterable[Node]],
    transfer: Callable[[Node, list[Fact]], Fact],
) -> dict[Node, Fact]:
    """The fact of each value, from those of its operands, which stand before it."""
    facts: dict[Node, Fact] = {}
    for value in values:
        facts[value] = transfer(value, [facts[each] for each in operands(value)])
    return facts


def sources(
    values: Iterable[Node],
    operands: Callable[[Node], Iterable[Node]],
    among: Iterable[Source],
    nearest: bool = False,
) -> dict[Node, frozenset[Source]]:
    """Which of some values each is made of, itself included; those are made of themselves alone, if `nearest`."""
    own: dict[Any, frozenset[Source]] = {each: frozenset((each,)) for each in among}

    def transfer(value: Node, below: list[frozenset[Source]]) -> frozenset[Source]:
        if value in own:
            return own[value] if nearest else own[value].union(*below)
        return below[0].union(*below[1:]) if below else frozenset()

    return forward(values, operands, transfer)


def affected(
    values: Collection[Node], operands: Callable[[Node], Iterable[Node]], seeds: Iterable[Node]
) -> set[Node]:
    """The seeds and all that is made of them, also where values are made of each other, as those of a loop are."""
    readers = readers_of(values, operands)
    return set(reachable(seeds, lambda value: readers.get(value, ())))


def fixpoint(
    values: Sequence[Node],
    operands: Callable[[Node], Iterable[Node]],
    transfer: Callable[[Node, list[Fact]], Fact],
    bottom: Fact,
) -> dict[Node, Fact]:
    """`forward` where values are made of each other: repeated from `bottom` until no fact changes."""
    facts = dict.fromkeys(values, bottom)
    changed = True
    while changed:
        changed = False
        for value in values:
            fact = transfer(value, [facts[each] for each in operands(value)])
            changed |= fact != facts[value]
            facts[value] = fact
    return facts


def readers_of(values: Iterable[Node], operands: Callable[[Node], Iterable[Source]]) -> dict[Source, list[Node]]:
    """The values that each operand is one of, as often as it is."""
    found: defaultdict[Source, list[Node]] = defaultdict(list)
    for value in values:
        for operand in operands(value):
            found[operand].append(value)
    return dict(found)


# -- equations ---------------------------------------------------------------------------------------------------------


def forward_equations(
    eqns: Iterable[Eqn],
    transfer: Callable[[Eqn, list[Fact]], Fact],
    known: Mapping[Var, Fact] | None = None,
) -> dict[Var, Fact]:
    """The fact of each variable, by the equation that makes it; operands of which nothing is known are left out."""
    facts: dict[Var, Fact] = dict(known or {})
    for eqn in eqns:
        below = [facts[var] for var in variables(eqn.invars) if var in facts]
        facts.update(dict.fromkeys(eqn.outvars, transfer(eqn, below)))
    return facts


def made_of(eqns: Iterable[Eqn], values: Iterable[Var]) -> set[Var]:
    """These variables, and what the equations make of them."""
    found = set(values)
    for eqn in eqns:
        if not found.isdisjoint(variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def computable(
    eqns: Iterable[Eqn], given: Iterable[Var], by: Callable[[Eqn], bool] = lambda eqn: not eqn.effects
) -> set[Var]:
    """These variables, and what can be computed of nothing else, `by` some of the equations."""
    found = set(given)
    for eqn in eqns:
        if found.issuperset(variables(eqn.invars)) and by(eqn):
            found.update(eqn.outvars)
    return found


def needed_for(eqns: Sequence[Eqn], wanted: Iterable[Var], goes_on: Callable[[Eqn, bool], bool]) -> set[Var]:
    """The wanted variables, and the operands of all equations that say so when asked whether a result is needed."""
    found = set(wanted)
    for eqn in reversed(eqns):
        if goes_on(eqn, not found.isdisjoint(eqn.outvars)):
            found.update(variables(eqn.invars))
    return found
