"""Programs that are put together of equations are valid, and have the names and effects that they should."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.ir import build
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.tracing import argument_names

X = np.linspace(-1, 1, 5, dtype=np.float32)


def traced(function: Any, *args: Any) -> Any:
    return jax.make_jaxpr(function)(*args)


def run(closed: Any, *args: Any) -> Any:
    jex.check_jaxpr(closed.jaxpr)
    return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)


def test_operands_are_replaced_and_names_stay() -> None:
    closed = traced(lambda first, second: jnp.sin(first) + second, X, X)
    first, second = closed.jaxpr.invars
    eqns = [build.reading(eqn, {second: first}) for eqn in closed.jaxpr.eqns]
    assert [new is old for new, old in zip(eqns, closed.jaxpr.eqns)] == [True, False]
    result = build.with_equations(closed, eqns)
    assert argument_names(result) == ["first", "second"]
    np.testing.assert_allclose(run(result, X, X + 1)[0], np.sin(X) + X, rtol=1e-6)


def test_an_equation_may_follow_another_one() -> None:
    closed = traced(lambda x: jnp.sin(x) * 2, X)
    sine, product = closed.jaxpr.eqns
    settled = build.variable(sine.outvars[0])
    follower = build.after(sine, rounded_p, sine.outvars, [settled])
    assert follower.source_info is sine.source_info
    result = build.with_equations(closed, [sine, follower, build.reading(product, {sine.outvars[0]: settled})])
    assert [eqn.primitive.name for eqn in result.jaxpr.eqns] == ["sin", "rounded", "mul"]
    np.testing.assert_allclose(run(result, X)[0], 2 * np.sin(X), rtol=1e-6)


def test_effects_go_with_their_equations() -> None:
    def function(x: Any) -> Any:
        jax.debug.print("{}", x[0])
        return x + 1

    closed = traced(function, X)
    quiet = build.with_equations(closed, [eqn for eqn in closed.jaxpr.eqns if not eqn.effects])
    assert closed.jaxpr.effects and not quiet.jaxpr.effects
    np.testing.assert_array_equal(run(quiet, X)[0], X + 1)


def test_constants_go_with_their_last_reader() -> None:
    table, other = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    closed = traced(lambda x: (x * jnp.asarray(table), x + jnp.asarray(other)), X)
    result = build.with_equations(closed, closed.jaxpr.eqns[:1], [closed.jaxpr.outvars[0], closed.jaxpr.invars[0]])
    assert len(closed.consts) == 2 and len(result.consts) == 1
    product, same = run(result, X)
    np.testing.assert_array_equal(product, X * table)
    np.testing.assert_array_equal(same, X)
