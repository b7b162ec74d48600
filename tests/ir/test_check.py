"""The checker refuses what is no program or no plan, in full sentences."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.check import check_plan, check_program
from jaxpr2triton.ir.index import Axis, of_axis, scale, shift
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan, PlannedAxis
from jaxpr2triton.plan.schedule.schedule import schedule

X = jax.ShapeDtypeStruct((6, 40), np.float32)


def traced(fn: Any, *avals: Any) -> Any:
    return jax.make_jaxpr(fn)(*avals)


GOOD = traced(lambda x: jnp.exp(x).sum(1), X)


def pretend(closed: Any, **changes: Any) -> Any:
    """A closed jaxpr that JAX would never have built."""
    parts = {name: getattr(closed.jaxpr, name) for name in ("invars", "constvars", "eqns", "outvars")}
    inner = SimpleNamespace(**{**parts, **changes})
    return SimpleNamespace(jaxpr=inner, in_avals=closed.in_avals, out_avals=closed.out_avals)


def test_a_program_is_like_itself() -> None:
    check_program(GOOD, GOOD)
    check_program(traced(lambda x: (x, 3.0), X), traced(lambda x: (x * 1, 2.0), X))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (pretend(GOOD, eqns=GOOD.jaxpr.eqns[1:]), "`reduce_sum` uses a variable before it is defined"),
        (pretend(GOOD, eqns=GOOD.jaxpr.eqns[::-1]), "`reduce_sum` uses a variable before it is defined"),
        (pretend(GOOD, invars=[]), "`exp` uses a variable before it is defined"),
        (pretend(GOOD, eqns=GOOD.jaxpr.eqns[:1]), "an output is not defined"),
        (
            traced(lambda x: jnp.exp(x).sum(0), X),
            "a stage changed the outputs: expected [((6,), dtype('float32'))], but found [((40,), dtype('float32'))]",
        ),
        (
            traced(lambda x: jnp.exp(x).sum(1), jax.ShapeDtypeStruct((6, 40), np.float16)),
            "a stage changed the inputs: expected [((6, 40), dtype('float32'))], "
            "but found [((6, 40), dtype('float16'))]",
        ),
        (
            traced(lambda x: (jnp.exp(x).sum(1),) * 2, X),
            "a stage changed the outputs: expected [((6,), dtype('float32'))], "
            "but found [((6,), dtype('float32')), ((6,), dtype('float32'))]",
        ),
    ],
)
def test_broken_programs(broken: Any, message: str) -> None:
    with pytest.raises(CompilerBug) as caught:
        check_program(broken, GOOD)
    assert str(caught.value) == message


ROW, COL = Axis("row", 6), Axis("col", 40)
PLAN = Plan(
    name="double",
    jaxpr=traced(lambda x: x * 2, X),
    axes=(PlannedAxis(ROW, Role.GRID, 1), PlannedAxis(COL, Role.LANE, 64)),
    places=((of_axis(ROW), of_axis(COL)),),
    num_warps=1,
    num_stages=2,
)


def test_a_good_plan() -> None:
    check_plan(PLAN)
    check_plan(schedule(GOOD, "good"))
    assert str(PLAN) == "kernel double   row: grid 6 | col: lane 40 of 64   warps 1\n  out0[row, col]"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            replace(PLAN, axes=(*PLAN.axes, PLAN.axes[0])),
            "kernel double has two axes of one name: ['row', 'col', 'row']",
        ),
        (
            replace(PLAN, axes=(PLAN.axes[0], PlannedAxis(COL, Role.LANE, 40))),
            "kernel double: the block of col is 40, not a power of two",
        ),
        (
            replace(PLAN, axes=(PlannedAxis(ROW, Role.GRID, 0), PLAN.axes[1])),
            "kernel double: the block of row is 0, not a power of two",
        ),
        (
            replace(PLAN, places=((of_axis(ROW), shift(of_axis(COL), 1)),)),
            "kernel double stores at col + 1, outside of 0 … 39",
        ),
        (
            replace(PLAN, places=((scale(of_axis(ROW), -1), of_axis(COL)),)),
            "kernel double stores at -row, outside of 0 … 5",
        ),
    ],
)
def test_broken_plans(broken: Plan, message: str) -> None:
    with pytest.raises(CompilerBug) as caught:
        check_plan(broken)
    assert str(caught.value) == message


def test_a_plan_says_how_many_programs_run() -> None:
    assert (PLAN.programs, PLAN.unrolled) == (6, frozenset())
    wide = replace(PLAN, axes=(PlannedAxis(ROW, Role.GRID, 4), PlannedAxis(COL, Role.UNROLL, 1)))
    assert (wide.programs, wide.unrolled) == (2, frozenset({COL}))
    assert [(p.is_tile, p.ragged, p.steps) for p in wide.axes] == [(True, True, 2), (False, False, 40)]
