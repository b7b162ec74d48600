"""What the passes say of each other is true, of all named programs, the bodies of their loops, and the pairs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
import pytest

from jaxpr2triton.normalize import passes
from jaxpr2triton.normalize.passes import Fact, Pass
from jaxpr2triton.normalize.rewrite import without_empty_shardings
from jaxpr2triton.trace import trace_flat
from tests.loop_programs import PROGRAMS as LOOP_PROGRAMS
from tests.normalize.canonical import canonical
from tests.normalize.pairs import FILES, pairs_in
from tests.programs import PROGRAMS

Precision = Callable[[], AbstractContextManager[Any]]
ORDER = (*passes.LOOPS, *passes.PASSES)
ORDERS = {"with loops": ORDER, "around loops": (*passes.AROUND_LOOPS, *passes.PASSES)}
NEIGHBOURS = list(zip(range(len(ORDER)), ORDER, ORDER[1:]))


@dataclass(frozen=True)
class Way:
    """What a program is before each pass of ORDER, and in the end."""

    name: str
    precision: Precision
    stages: Sequence[jex.ClosedJaxpr]


@pytest.fixture(scope="module")
def ways() -> list[Way]:
    found: dict[Hashable, Way] = {}
    for name, precision, closed in _programs():
        with precision():
            for program in _with_bodies(closed):
                if (key := canonical(program)) not in found:
                    found[key] = Way(name, precision, _stages(program))
    return list(found.values())


def _programs() -> Iterator[tuple[str, Precision, jex.ClosedJaxpr]]:
    for pair in (pair for file in FILES for pair in pairs_in(file)):
        closed, _ = pair.program()
        yield str(pair), nullcontext, closed
        called = jax.jit(jex.jaxpr_as_fun(closed))
        yield f"{pair}, in a call", nullcontext, jax.make_jaxpr(called)(*closed.in_avals)
    for program in (*PROGRAMS, *LOOP_PROGRAMS):
        for function in (program.fn, *([program.gradient()] if program.grad is not None else [])):
            with program.precision():
                leaves, tree = jax.tree.flatten(program.args(np.random.default_rng(0)))
                flat = _flat(function, tree)
                yield f"{program.name}: {function.__name__}", program.precision, trace_flat(flat, leaves)[0]


def _flat(function: Callable[..., Any], tree: Any) -> Callable[..., list[Any]]:
    return lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves)))


def _with_bodies(closed: jex.ClosedJaxpr) -> list[jex.ClosedJaxpr]:
    """Everything that is normalised along with the program."""
    found: list[jex.ClosedJaxpr] = []
    normalize = passes.normalize

    def recorded(program: jex.ClosedJaxpr, **how: bool) -> jex.ClosedJaxpr:
        found.append(program)
        return normalize(program, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "normalize", recorded)
        recorded(closed)
    return found


def _stages(closed: jex.ClosedJaxpr) -> list[jex.ClosedJaxpr]:
    stages = [without_empty_shardings(closed)]
    for each in ORDER:
        stages.append(each.run(stages[-1]))
    return stages


def _same(one: jex.ClosedJaxpr, other: jex.ClosedJaxpr) -> bool:
    return one is other or canonical(one) == canonical(other)


def name_of(item: Any) -> str:
    return item.name if isinstance(item, Pass) else str(item)


@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
def test_what_a_pass_needs_is_given_by_those_before_it(order: Sequence[Pass]) -> None:
    given = Fact(0)
    for each in order:
        assert each.needs in given, f"{each.name} needs {each.needs & ~given}"
        given |= each.gives


def test_a_fact_is_given_by_one_pass_of_an_order() -> None:
    for order in ORDERS.values():
        givers = {each.gives: each.name for each in order}
        assert len(set(givers.values())) == len(givers) == len({each.name for each in order})
        assert all(len(list(fact)) == 1 for fact in givers)


@pytest.mark.parametrize("number", range(len(ORDER)), ids=lambda number: f"{number}-{ORDER[number].name}")
def test_a_pass_changes_nothing_the_second_time(number: int, ways: list[Way]) -> None:
    """What a pass gives is there when it has run: it would leave the program as it is."""
    for way in ways:
        once = way.stages[number + 1]
        with way.precision():
            assert once is way.stages[number] or _same(ORDER[number].run(once), once), way.name


@pytest.mark.parametrize("number", range(len(ORDER)), ids=lambda number: f"{number}-{ORDER[number].name}")
def test_what_a_pass_needs_is_there_when_it_runs(number: int, ways: list[Way]) -> None:
    """No pass in between has undone it."""
    givers = [each for each in {each.gives: each for each in ORDER}.values() if each.gives in ORDER[number].needs]
    for way in ways:
        before = way.stages[number]
        with way.precision():
            for giver in givers:
                assert _same(giver.run(before), before), f"{way.name}: {giver.gives}"


@pytest.mark.parametrize("number", range(len(ORDER)), ids=lambda number: f"{number}-{ORDER[number].name}")
def test_what_a_pass_needs_makes_a_difference_to_it(number: int, ways: list[Way]) -> None:
    """To some program: nothing is said to be needed out of habit."""
    for fact in ORDER[number].needs:
        places = [place for place, each in enumerate(ORDER[:number]) if each.gives == fact]
        assert any(not _commute(place, ORDER[number], way) for place in places for way in ways), fact


def _commute(place: int, later: Pass, way: Way) -> bool:
    """Whether a pass does the same before the one at a place of the order as after it."""
    before, after = way.stages[place : place + 2]
    with way.precision():
        early = later.run(before)
        if early is before and after is before:
            return True
        return _same(ORDER[place].run(early), later.run(after))


@pytest.mark.parametrize(("number", "one", "other"), NEIGHBOURS, ids=name_of)
def test_neighbours_commute_unless_one_needs_the_other(number: int, one: Pass, other: Pass, ways: list[Way]) -> None:
    """In the end the program has the same equations, and so the same kernels, up to names and their order."""
    differing = [way.name for way in ways if not _ends_alike(number, way)]
    if one.gives in other.needs:
        assert differing, "they are said to be in this order for a reason"
    else:
        assert not differing


def _ends_alike(number: int, way: Way) -> bool:
    """Whether the program is the same in the end if a pass and the next one change places."""
    before, after = way.stages[number], way.stages[number + 2]
    with way.precision():
        program = ORDER[number].run(ORDER[number + 1].run(before))
        if _same(program, after):
            return True
        for each in ORDER[number + 2 :]:
            program = each.run(program)
        return _same(program, way.stages[-1])
