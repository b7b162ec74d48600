"""Loops that something goes wrong with stay with XLA, and the others do not."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit.emit import emit
from jaxpr2triton.graph.nodes import Graph
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.pipeline import stages
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.plan.decisions import Decisions, Reach, Refuse
from jaxpr2triton.plan.refusal import body_of, is_refused, refused_for
from jaxpr2triton.report.reasons import leftovers_of
from tests.policies import planned_with


def two_loops(x: Any, y: Any) -> Any:
    one = lax.fori_loop(0, 3, lambda _, c: jnp.sin(c), x)
    return one, lax.fori_loop(0, 4, lambda _, c: jnp.cos(c), y)


X, Y = np.linspace(0, 1, 5, dtype=np.float32), np.linspace(0, 1, 70, dtype=np.float32)


@pytest.fixture(autouse=True)
def _not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("J2T_RAISE")


def test_only_the_loop_that_fails_is_refused() -> None:
    def fails_on_cosines(plan: Plan, graph: Graph) -> Any:
        if "cos" in str(plan.jaxpr):
            raise KeyError("cosine")
        return emit(plan, graph)

    with mock.patch.object(stages, "emit", fails_on_cosines):
        made = compile_jaxpr(jax.make_jaxpr(two_loops)(X, Y), "two")
    (left,) = leftovers_of(made)
    assert (len(made.kernels), left.primitive) == (1, "scan")
    place = r"jaxpr2triton/pipeline/stages.py:\d+"
    assert re.fullmatch(rf"a mistake in jaxpr2triton \(KeyError: 'cosine', at {place}\)", left.why)
    assert [mistake.what for mistake in made.mistakes] == ["KeyError: 'cosine'"]
    for mine, theirs in zip(made.run("interpret", False, X, Y), two_loops(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def loop() -> Any:
    (found,) = jax.make_jaxpr(lambda x: lax.scan(lambda c, _: (c, None), x, None, 3)[0])(1.0).eqns
    return found


def problem() -> Exception:
    return ValueError("first\nsecond")


def test_mistakes_without_loops_cost_no_loops() -> None:
    (plain,) = jax.make_jaxpr(jnp.sin)(1.0).eqns
    assert refused_for(problem(), [plain]) is None


def test_a_mistake_refuses_the_loops_that_it_concerns() -> None:
    eqn = loop()
    refusal = refused_for(problem(), [eqn])
    assert isinstance(refusal, Refuse)
    ((body, reason),) = refusal.loops.items()
    assert body == body_of(eqn) and refusal.mistakes == (reason,) and refusal.why is reason
    assert (reason.what, reason.where.split(":")[0]) == ("ValueError: first", "test_refusal.py")


def test_which_loops_are_refused() -> None:
    eqn = loop()
    assert not is_refused(eqn, Decisions())
    assert is_refused(eqn, Decisions(refused={body_of(eqn): "too long"}))
    assert is_refused(eqn, Decisions(reach=Reach.NO_LOOPS))


def test_nothing_is_refused_for_a_mistake_when_mistakes_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_RAISE", "1")
    with pytest.raises(ValueError, match="first"):
        refused_for(problem(), [loop()])


def potts(state: Any, key: Any) -> Any:
    """Five colours of a grid, drawn by those of the four neighbours: half of the places, and then the other half."""
    side = len(state)
    half = (jnp.arange(side)[:, None] + jnp.arange(side)) % 2

    def step(state: Any, key: Any) -> Any:
        for part, own in enumerate(jax.random.split(key)):
            colours = jax.nn.one_hot(state, 5)
            around = sum(jnp.roll(colours, by, axis) for by in (1, -1) for axis in (0, 1))
            state = jnp.where(half == part, jax.random.categorical(own, around).astype(jnp.int32), state)
        return state, (state == 0).mean()

    return lax.scan(step, state, jax.random.split(key, 50))


def grid_of(side: int) -> tuple[Any, Any]:
    state = np.random.default_rng(0).integers(0, 5, (side, side))
    return state.astype(np.int32), jax.random.PRNGKey(1)


def test_a_step_that_compilers_do_not_come_to_an_end_with_stays_with_xla() -> None:
    """Each thread of one program has a share of all places, and hashes a number for each."""
    (left,) = j2t.transpile(potts, *grid_of(64), contractions="triton").leftovers
    said = r"a step would be 1\d\d,\d\d\d instructions of each thread, and compilers come to an end with 65,536"
    assert re.fullmatch(said, left.why), left.why


def test_a_loop_of_too_long_a_step_computes_the_same() -> None:
    state, key = grid_of(6)
    with planned_with(cuts={"instructions": 100}):
        (left,) = j2t.transpile(lambda *args: potts(*args), state, key, contractions="triton").leftovers
        got = j2t.fuse(lambda *args: potts(*args), backend="interpret", contractions="triton")(state, key)
    assert left.primitive == "scan" and left.why.endswith("and compilers come to an end with 100")
    for one, other in zip(got, jax.jit(potts)(state, key), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
