"""Which choices are written as an `if`: those on one predicate for the whole program, where a side is much work.

    y = where(p, long(x), x)        if p:
    z = where(p, longer(x), 0)          y = long(x)
                               →        z = longer(x)
                                    else:
                                        y = x
                                        z = 0.0

A side holds what nothing but that side needs, and what is computed in the same loops as the choice: a value that does
not depend on the step stays before the loop. Loops are never in a side, nor are loads, for which the compiler finds
better places where they have no condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxpr2triton.graph.nodes import (
    Accumulated,
    Carried,
    Compute,
    Constant,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Node,
    Recurrence,
    operands_of,
)
from jaxpr2triton.graph.order import Order
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.index import Axis, computed_in

SIDES = (1, 2)  # where the operands of a choice stand: if the predicate does not hold, and if it does


@dataclass(frozen=True)
class Test:
    """A predicate in some loops; choices on it of which one needs another are tests one after the other."""

    predicate: Node
    loops: frozenset[Axis]
    when: Any  # which loops have to be over before, and whose steps it belongs to
    turn: int = 0


Context = tuple[tuple[Test, int], ...]  # the sides in which a value lies, outermost first


@dataclass(frozen=True)
class Branch:
    """The choices of one `if`, and what only they need on each side."""

    chosen: tuple[Compute, ...]
    sides: tuple[frozenset[Node], frozenset[Node]]  # as in SIDES


def find_branches(
    graph: Graph, order: Order, is_scalar: Callable[[Node], bool], cycles: Callable[[Node], float], least: int
) -> dict[Node, Branch]:
    """The branch of each choice that is written as one: its longer side takes so many cycles at least."""
    known = {loop.carried[0] for loop in graph.of_kind(Recurrence) if loop.conditional}  # true, or there were no step
    choices = [node for node in graph.of_kind(Compute) if _chooses(node, is_scalar) and node.operands[0] not in known]
    tests: dict[Node, Test] = {node: _test(node, order) for node in choices}
    if not tests:
        return {}
    outside = _outside(graph, order)
    tests = _worthwhile(graph, order, outside, tests, cycles, least)
    tests = _in_turns(graph, tests)
    tests = _worthwhile(graph, order, outside, tests, cycles, least)
    contexts = _contexts(graph, order, outside, tests)
    members: defaultdict[tuple[Context, Test], list[Compute]] = defaultdict(list)
    for node in choices:
        if node in tests:
            members[contexts[node], tests[node]].append(node)
    found: dict[Node, Branch] = {}
    for (context, test), chosen in members.items():
        inner = [(*context, (test, side)) for side in SIDES]
        first, second = (frozenset(n for n, lies in contexts.items() if lies[: len(c)] == c) for c in inner)
        found.update(dict.fromkeys(chosen, Branch(tuple(chosen), (first, second))))
    return found


def _chooses(node: Compute, is_scalar: Callable[[Node], bool]) -> bool:
    if node.eqn.primitive.name != "select_n":
        return False
    predicate = node.operands[0]
    return is_bool(predicate.dtype) and is_scalar(predicate) and not isinstance(predicate, Constant)


def _test(node: Compute, order: Order) -> Test:
    when = frozenset(order.passes[node].items()), order.used[node]
    return Test(node.operands[0], order.loops(node), when)


def _outside(graph: Graph, order: Order) -> set[Node]:
    """What lies in no side: loads, loops and what they carry, and what places of stores are computed from."""
    kinds = (Carried, Final, Keep, Kept, Load, Recurrence)
    found = {node for node in graph.nodes if isinstance(node, kinds) or order.ends_a_loop(node)}
    places = [store.place for store in graph.stores]
    places += [place for keep in graph.of_kind(Keep) for place in keep.places]
    guards = [condition for met in graph.of_kind(Accumulated) for guard in met.guards for condition in guard]
    indices = [*(index for place in places for index in place), *(condition.index for condition in guards)]
    return found | {graph.computed[number.key] for index in indices for number in computed_in(index)}


def _contexts(graph: Graph, order: Order, outside: set[Node], tests: Mapping[Node, Test]) -> dict[Node, Context]:
    """The sides in which all who need a value lie."""
    found: dict[Node, Context] = {store.value: () for store in graph.stores}
    for node in reversed(graph.nodes):
        context = () if node in outside else found.get(node, ())
        loops = order.loops(node)
        strange = (n for n, (test, _) in enumerate(context) if test.loops != loops)
        found[node] = context = context[: next(strange, None)]
        for position, operand in enumerate(operands_of(node)):
            lies = (*context, (tests[node], position)) if node in tests and position else context
            found[operand] = _shared(found[operand], lies) if operand in found else lies
    return found


def _shared(one: Context, other: Context) -> Context:
    differ = (n for n, (mine, theirs) in enumerate(zip(one, other)) if mine != theirs)
    return one[: next(differ, min(len(one), len(other)))]


def _worthwhile(
    graph: Graph,
    order: Order,
    outside: set[Node],
    tests: Mapping[Node, Test],
    cycles: Callable[[Node], float],
    least: int,
) -> dict[Node, Test]:
    work: defaultdict[tuple[Test, int], float] = defaultdict(float)
    for node, context in _contexts(graph, order, outside, tests).items():
        for side in context:
            work[side] += cycles(node)
    long = {test for (test, _), found in work.items() if found >= least}
    return {node: test for node, test in tests.items() if test in long}


def _in_turns(graph: Graph, tests: Mapping[Node, Test]) -> dict[Node, Test]:
    """Tests that can be made one after the other: no choice needs another one of the same test, nor do two tests need
    choices of each other, as where y = where(p, x, 0) and where(q, y, 0) are beside where(q, z, 0), which p needs.
    """
    found: dict[Node, Test] = {}
    passed: dict[Node, frozenset[Test]] = {}  # the tests on the way to each value
    needed: defaultdict[Test, set[Test]] = defaultdict(set)
    for node in graph.nodes:
        below = frozenset[Test]().union(*(passed[operand] for operand in operands_of(node)))
        if node in tests:
            test = tests[node]
            while _reaches(needed, below, test):
                test = replace(test, turn=test.turn + 1)
            needed[test] |= below
            found[node] = test
            below |= {test}
        passed[node] = below
    return found


def _reaches(needed: Mapping[Test, set[Test]], begin: Iterable[Test], wanted: Test) -> bool:
    """Whether a test is among some, or among those that they need."""
    return any(test == wanted for test in reachable(begin, lambda test: needed[test]))
