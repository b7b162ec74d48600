"""How often XLA launches something for a loop, and that all reports tell the same of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Alone, Launches
from jaxpr2triton.pipeline.xla_time import launches_alone, launches_of, time_of_loop
from jaxpr2triton.policy import DEFAULT_POLICY

LARGE = jax.ShapeDtypeStruct((256, 256), jnp.float32)
FIXED = DEFAULT_POLICY.loops.loop_overhead_launches  # of each step, beside what it computes


def steps(count: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=count)[0]


@pytest.mark.parametrize(
    ("fn", "launches", "count"),
    [
        (steps(100, lambda c: jnp.tanh(c) * 2), 1, 100),
        (steps(100, lambda c: jnp.tanh(c @ c)), 2, 100),
        (steps(100, lambda c: c - jnp.sort(c, 0).sum(0)), 3, 100),
        (steps(100, lambda c: c + c.sum(0) * c.max(0)), 2, 100),  # sums along the same dimensions are one
        (steps(100, jax.jit(lambda c: c @ c)), 2, 100),
        (steps(100, steps(10, lambda c: c @ c)), 1 + 10 * (2 + FIXED), 100),
        (steps(100, lambda c: lax.cond(c[0, 0] > 0, lambda c: c @ c @ c, lambda c: c @ c, c)), 3, 100),
        (steps(100, lambda c: lax.reduce_precision(c, 8, 7)), 1, 100),
        (lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ c, x), 1 + 2, None),  # and asks how it goes on
    ],
)
def test_launches_of_a_loop(fn: Callable[[Any], Any], launches: int, count: int | None) -> None:
    (eqn,) = jax.make_jaxpr(fn)(LARGE).jaxpr.eqns
    found = launches_of(eqn, DEFAULT_POLICY)
    assert found == Launches(launches + FIXED, count)
    assert count is None or time_of_loop(eqn, DEFAULT_POLICY).launches == found.in_all


def test_launches_of_a_whole_program() -> None:
    """Those in the cases of a choice are beside its loops, but for the loops there."""
    loop = ("scan", Launches(2 + FIXED, 100))
    one, two = steps(100, lambda c: c @ c), steps(7, jnp.tanh)

    def chosen(x: Any) -> Any:
        return lax.cond(x[0, 0] > 0, two, two, one(x * 2))

    for fn, expected in (
        (lambda x: one(x * 2) + 1, Alone(2, (loop,))),
        (chosen, Alone(2 + 1 + 7 * (1 + FIXED), (loop,))),
    ):
        assert launches_alone(jax.make_jaxpr(fn)(LARGE), DEFAULT_POLICY) == expected


def test_one_loop_has_one_number_of_launches_and_one_time() -> None:
    """In the reason why it stays, beneath it, and in what programs read."""

    def rnn(h: Any, xs: Any, u: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(x + h @ u),) * 2, h, xs)

    shapes = (1024, 256), (64, 1024, 256), (256, 256)
    program = j2t.transpile(rnn, *(jax.ShapeDtypeStruct(each, jnp.float32) for each in shapes), for_target="sm_90")
    facts, text = program.explain_json(), " ".join(program.explain().split())
    (left,) = facts["leftovers"]
    said = re.search(r"XLA about ([\d,]+) µs for ([\d,]+) launches", text)
    below = re.search(r"XLA: (\d+) launches a step, ([\d,]+) in all, about ([\d,]+) µs", text)
    assert said is not None and below is not None
    assert (said[1], said[2]) == (below[3], below[2])
    assert left["launches"] == {"a_step": int(below[1]), "steps": 64, "in_all": int(below[2])}
    assert facts["microseconds"] == left["microseconds"] == pytest.approx(float(said[1]), rel=0.05)
