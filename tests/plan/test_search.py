"""The search for decisions: it ends soon, it records its rounds, and it says what they were about."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import Mistake
from jaxpr2triton.plan.decisions import Decisions, Part, Reach, Refuse, Wish
from jaxpr2triton.plan.search import search
from tests.programs import windows


def nothing(decisions: Decisions) -> Wish | None:
    """What is foreseen of a program without loops."""
    return None


def two_ways(c: Any, xs: Any) -> Any:
    d, states = lax.scan(lambda c, x: (0.5 * c + x, c), c, xs)
    return lax.scan(lambda c, x: (jnp.tanh(c + x), c), d, jnp.sin(states), reverse=True)[1]


def steps(fn: Any, *args: Any) -> tuple[str, ...]:
    return j2t.transpile(fn, *args).summary.steps


def test_what_two_loops_have_in_common_is_decided_before_the_first_attempt() -> None:
    program = j2t.transpile(two_ways, np.ones(300, np.float32), np.ones((7, 300), np.float32))
    (step,) = program.summary.steps
    assert not program.compiled.rounds  # it is known before the first attempt
    before, after = step.split(": the kernel keeps ")
    assert before == "a loop reads what another one makes in another order or at several places"
    line = two_ways.__code__.co_firstlineno + 1
    assert after == f"f32[7,300] of test_search.py:{line} (two_ways) along dimension 0"


def test_no_loop_is_run_by_two_kernels() -> None:
    """What is summed over the steps is wanted with sums of windows, and those wait for XLA."""

    def fn(c: Any, xs: Any) -> Any:
        d, ys = lax.scan(lambda c, x: (jnp.tanh(c + x), jnp.sum(c)), c, xs)
        return jnp.sum(ys**2) + jnp.sum(windows(d))

    args = np.linspace(-1, 1, 8, dtype=np.float32), np.ones((5, 8), np.float32)
    program = j2t.transpile(fn, *args)
    assert [len(re.findall("for t(?:_round)? in", kernel.source)) for kernel in program.kernels] == [1, 0]
    (step,) = program.summary.steps
    outcome = "all that is read of it comes into memory where its kernel ends"
    assert step == f"a loop would be part of several kernels: {outcome}"
    np.testing.assert_allclose(program(*args), jax.jit(fn)(*args), rtol=1e-5)


def test_nothing_has_to_be_decided_where_there_are_no_loops() -> None:
    assert steps(jax.nn.softmax, np.ones((4, 8), np.float32)) == ()


def test_a_search_ends_with_what_could_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Decisions] = []

    def attempt(decisions: Decisions) -> Wish | None:
        seen.append(decisions)
        return None if decisions.refused else Refuse({1: "too long"})

    decisions, rounds = search(nothing, attempt, True, [])
    assert decisions is seen[-1] and decisions.refused == {1: "too long"}
    assert [(each.before, each.after) for each in rounds] == [(seen[0], seen[1])]


def test_all_that_can_be_foreseen_comes_before_an_attempt() -> None:
    """Also once an attempt has changed what the program is."""
    tried: list[Decisions] = []

    def foresee(decisions: Decisions) -> Wish | None:
        known = {1, 2, 3} if decisions.apart else {1, 2}
        return next((Refuse({loop: "known"}) for loop in known if loop not in decisions.refused), None)

    def attempt(decisions: Decisions) -> Wish | None:
        tried.append(decisions)
        return None if decisions.apart else Part("quicker")

    decisions, rounds = search(foresee, attempt, True, [])
    assert [sorted(each.refused) for each in tried] == [[1, 2], [1, 2, 3]] and decisions is tried[-1]
    assert [each.is_foreseen for each in rounds] == [True, True, False, True, True, True]


def test_mistakes_cost_loops_and_then_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_RAISE")

    def attempt(decisions: Decisions) -> Wish | None:
        raise KeyError("row")

    for has_loops, reaches in ((True, [Reach.NO_LOOPS, Reach.NOTHING]), (False, [Reach.NOTHING])):
        decisions, rounds = search(nothing, attempt, has_loops, [])
        assert [each.after.reach for each in rounds] == reaches
        assert all(isinstance(each.obstacle, Mistake) for each in rounds)
        assert decisions.because is decisions.mistakes[-1]


def test_a_wish_that_changes_nothing_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_RAISE")
    decisions, (only,) = search(nothing, lambda decisions: Refuse({}), False, [])
    assert decisions.reach is Reach.NOTHING and isinstance(only.obstacle, Mistake)
