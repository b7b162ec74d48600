"""Decisions grow with each wish that is granted, until nothing is left to be wished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpr2triton.errors import CompilerBug, Mistake
from jaxpr2triton.plan.decisions import (
    Decisions,
    DropRoles,
    Extent,
    KeepLess,
    KeepMore,
    Leave,
    Part,
    Reach,
    Refuse,
    RunOnce,
    Tile,
    Wish,
    granted,
)

REFUSAL = Refuse({1: "crowded"})
MISTAKE = Mistake(KeyError("row"), "KeyError: 'row'", "here", "")


def variable() -> Any:
    return jex.Var(jax.core.ShapedArray((4, 3), np.float32))


VARIABLES = [variable() for _ in range(3)]


def extents(decisions: Decisions) -> dict[Any, Extent]:
    return {var: kept.extent for var, kept in decisions.kept.items()}


def test_more_is_kept_step_by_step_and_never_more_than_all() -> None:
    var, decisions = variable(), Decisions()
    wish = KeepMore(((var, ()),), REFUSAL)
    for extent in Extent:
        decisions = granted(decisions, wish)
        assert extents(decisions) == {var: extent}
    assert granted(decisions, wish).refused == {1: "crowded"}


def test_it_is_kept_along_more_dimensions_before_it_is_kept_for_more() -> None:
    var = variable()
    first = granted(Decisions(), KeepMore(((var, (0,)),), REFUSAL))
    second = granted(first, KeepMore(((var, (1,)),), REFUSAL))
    assert (first.dims_of(var), second.dims_of(var)) == ((0,), (0, 1))
    assert extents(first) == extents(second) == {var: Extent.STEPS}
    assert first.dims_of(variable()) is None


def test_what_is_kept_by_choice_can_be_given_up() -> None:
    """What had to be kept beside it is found out anew: kernels are others then."""
    one, two, other = VARIABLES
    decisions = granted(Decisions(), KeepMore(((one, ()), (two, ())), None))
    decisions = granted(decisions, KeepMore(((other, ()),), REFUSAL))
    declined = granted(decisions, KeepLess((one,)))
    assert declined.declined == {one} and declined.chooses and extents(declined) == {two: Extent.STEPS}
    for wish in (RunOnce(frozenset({1})), REFUSAL):
        given_up = granted(decisions, wish)
        assert not given_up.kept and not given_up.chooses and not given_up.refused


def test_a_loop_that_would_run_twice_ends_its_kernel() -> None:
    once = granted(Decisions(), RunOnce(frozenset({1})))
    assert once.ended == {1} and once.chooses


def test_what_was_kept_by_choice_is_given_up_before_a_loop_is_refused() -> None:
    var = variable()
    decisions = granted(Decisions(), KeepMore(((var, (0, 1)),), None))
    while decisions.chooses:
        decisions = granted(decisions, KeepMore(((var, (0, 1)),), REFUSAL))
    assert not decisions.kept and not decisions.refused


def test_what_was_tiled_is_made_whole_before_a_loop_is_refused() -> None:
    var = variable()
    decisions = granted(Decisions(), Tile({var: (1,)}))
    assert decisions.dims_of(var) == (1,) and not decisions.not_tried({var: (1,)})
    whole = granted(decisions, REFUSAL)
    assert (whole.dims_of(var), whole.whole, whole.refused) == (None, {var}, {})
    assert not whole.not_tried({var: (1,)})
    assert granted(decisions, KeepMore(((var, ()),), REFUSAL)).whole == {var}


def test_a_loop_that_was_refused_already_costs_all_loops() -> None:
    refused = granted(Decisions(), REFUSAL)
    assert refused.reach is Reach.ALL
    none = granted(refused, REFUSAL)
    assert (none.reach, none.because) == (Reach.NO_LOOPS, "crowded")


def test_a_mistake_costs_the_roles_too() -> None:
    for wish in (Refuse({1: MISTAKE, 2: "crowded"}), DropRoles(MISTAKE)):
        decisions = granted(Decisions(), wish)
        assert not decisions.with_roles and decisions.mistakes == (MISTAKE,)


def test_what_has_no_loops_cannot_be_refused() -> None:
    with pytest.raises(CompilerBug):
        granted(Decisions(), Refuse({}))


def test_what_xla_does_in_less_time_is_first_made_to_do_less() -> None:
    """The bodies of its loops are others then, so all else is decided anew; loops that are left stay as they are."""
    tiled = granted(Decisions(), Tile({VARIABLES[0]: (0,)}))
    apart = granted(tiled, Leave({1: "dearer"}))
    assert apart == Decisions(apart=True)
    tiled = granted(apart, Tile({VARIABLES[0]: (0,)}))
    left = granted(tiled, Leave({2: "dearer still"}))
    assert left == replace(tiled, refused={2: "dearer still"})


def test_what_multiplies_nothing_is_left_at_once() -> None:
    """And no product leaves another loop for it."""
    assert granted(Decisions(), Leave({1: "dearer"}, multiply=False)) == Decisions(refused={1: "dearer"})


def test_what_takes_less_time_at_once_leaves_loops_that_are_kernels() -> None:
    tiled = granted(Decisions(), Tile({VARIABLES[0]: (0,)}))
    apart = granted(tiled, Part("quicker"))
    assert apart == Decisions(apart=True)
    assert granted(apart, Leave({2: "dearer"})) == Decisions(apart=True, refused={2: "dearer"})


LOOPS = st.sets(st.integers(1, 3), min_size=1)
REFUSALS = LOOPS.map(lambda loops: Refuse(dict.fromkeys(loops, "crowded")))
WANTED = st.lists(st.tuples(st.sampled_from(VARIABLES), st.sampled_from([(), (0,), (1,), (0, 1)])), min_size=1)
DIMS = st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from([(0,), (1,)]), min_size=1)


@st.composite
def wishes(draw: st.DrawFn, decisions: Decisions) -> Wish:
    """Those that the stages can have, with these decisions."""
    kinds: list[Any] = [REFUSALS, st.builds(KeepMore, WANTED.map(tuple), REFUSALS)]
    if decisions.chooses:
        kinds.append(st.builds(KeepMore, WANTED.map(tuple), st.none()))
    chosen = [var for var, kept in decisions.kept.items() if kept.by_choice and var not in decisions.declined]
    if chosen and decisions.chooses:
        kinds.append(st.just(KeepLess(tuple(chosen))))
    if again := draw(LOOPS) - decisions.ended:
        kinds.append(st.just(RunOnce(frozenset(again))))
    if not decisions.apart or (new := draw(LOOPS) - decisions.refused.keys()):
        kinds.append(st.just(Leave(dict.fromkeys(new if decisions.apart else [1], "dearer"))))
    if not decisions.apart:
        kinds.append(st.just(Part("quicker")))
    if new := decisions.not_tried(draw(DIMS)):
        kinds.append(st.just(Tile(new)))
    return draw(st.one_of(kinds))


@given(st.data())
def test_whatever_is_wished_decisions_grow_and_end(data: st.DataObject) -> None:
    decisions = Decisions()
    for _ in range(60):
        after = granted(decisions, data.draw(wishes(decisions)))
        assert after.measure > decisions.measure
        decisions = after
        if decisions.reach is not Reach.ALL:
            return
    raise AssertionError("there is no end to it")
