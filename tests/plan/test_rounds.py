"""What is said of each round of planning: what stood in the way, and what was decided then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.plan.decisions import Decisions, Extent, KeepLess, KeepMore, Kept, Part, Reach, Refuse, RunOnce, Tile
from jaxpr2triton.plan.partition.loop_results import kept_instead
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.plan.rounds import said
from jaxpr2triton.plan.search import Round


def looped(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=3)


CLOSED = jax.make_jaxpr(looped)(jnp.ones(4))
(LOOP,) = CLOSED.jaxpr.eqns
RESULT: Var = LOOP.outvars[1]
BODY = body_of(LOOP)
AT = f"test_rounds.py:{looped.__code__.co_firstlineno + 1} (looped)"
NONE = Decisions()
DECIDED: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "a matrix that a loop multiplies by does not fit a program: the kernel makes it piece by piece and keeps "
    "f32[3,4] of {} along dimension 1": lambda: (Tile({RESULT: (1,)}), {"tiled": {RESULT: (1,)}}),
    "a loop would be part of several kernels: every result of a loop comes into memory where its kernel ends": lambda: (
        RunOnce(frozenset({BODY})),
        {"chooses": False},
    ),
    "a loop would be part of several kernels: all that is read of it comes into memory where its kernel ends": lambda: (
        RunOnce(frozenset({BODY})),
        {"ended": frozenset({BODY})},
    ),
    "a reason: a loop of {} stays with XLA": lambda: (Refuse({BODY: "a reason"}), {"refused": {BODY: "a reason"}}),
    "a reason: all loops stay with XLA": lambda: (Part("a reason"), {"reach": Reach.NO_LOOPS}),
    "a reason: XLA runs the whole program": lambda: (Part("a reason"), {"reach": Reach.NOTHING}),
    "a reason: f32[3,4] of {} is made at once": lambda: (Part("a reason"), {"whole": frozenset({RESULT})}),
    "a reason: what no step waits for is multiplied outside of the loops": lambda: (Part("a reason"), {"apart": True}),
    "a reason: the roles that were asked for are dropped": lambda: (Part("a reason"), {"with_roles": False}),
    "keeping what a loop makes would take programs away: f32[3,4] of {} comes into memory where its kernel ends": (
        lambda: (KeepLess((RESULT,)), {"declined": frozenset({RESULT})})
    ),
    "a loop reads what another one makes in another order or at several places: the kernel keeps f32[3,4] of {} along "
    "dimension 0": lambda: (KeepMore(((RESULT, (0,)),), None), {"kept": {RESULT: Kept(Extent.STEPS, (0,))}}),
}


@pytest.mark.parametrize(
    ("crowded", "why"),
    [
        (TooManyPlaces(RESULT), "a result of a loop in its body is read at several places"),
        (TooManyPlaces(RESULT, (0,)), "what a loop has made is read in another order than it is kept"),
    ],
)
def test_why_a_loop_is_refused_where_its_results_cannot_be_kept(crowded: TooManyPlaces, why: str) -> None:
    program: Any = SimpleNamespace(inside=[LOOP])
    found = kept_instead(program, crowded, [LOOP])
    assert found.otherwise == Refuse({BODY: why})


@pytest.mark.parametrize("sentence", DECIDED)
def test_what_is_said(sentence: str) -> None:
    obstacle, after = DECIDED[sentence]()
    (found,) = said([Round(NONE, obstacle, replace(NONE, **after))], CLOSED)
    assert found == sentence.format(AT)
