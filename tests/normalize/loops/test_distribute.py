"""A scan as several loops is the same scan, whichever way it is distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.scans import Body, body_of
from jaxpr2triton.normalize.loops.distribute import Stage, distribute
from jaxpr2triton.normalize.rewrite import rewrite
from tests.normalize.passing import after, primitives_of

X = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(4, 3)
START = np.array([0.5, -1.0, 2.0], np.float32)


def affine_beside_another(start: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        a, b = carry
        a = jnp.sin(a) + x
        b = a * b
        return (a, b), (b, jnp.cos(x), jnp.ones(3))

    return lax.scan(step, (start, start), xs)


def distributed(stages: Callable[[Body], Sequence[Stage]]) -> Any:
    def rule(node: Any, rewriter: Any) -> Any:
        if node.name != "scan":
            return None
        body = body_of(node.params)
        return distribute(node, body, stages(body))

    return after(lambda closed: rewrite(closed, rule), affine_beside_another, START, X)


def made(body: Body, name: str) -> Any:
    return next(eqn.outvars[0] for eqn in body.jaxpr.eqns if eqn.primitive.name == name)


def test_one_loop_after_the_other() -> None:
    result = distributed(lambda body: [Stage((0,), (body.afters[0],)), Stage((1,), (body.ys[0],))])
    first, last = (eqn for eqn in result.jaxpr.eqns if eqn.primitive.name == "scan")
    assert primitives_of(first.params["jaxpr"]) == ["sin", "add"] and "mul" in primitives_of(last.params["jaxpr"])
    assert "sin" not in primitives_of(last.params["jaxpr"])


def test_what_no_stage_shows_is_made_of_all_steps_at_once() -> None:
    result = distributed(lambda body: [Stage(body.places, (body.ys[0],))])
    assert primitives_of(result).count("scan") == 1 and "cos" in primitives_of(result)


def test_what_is_made_of_all_steps_before_the_loop() -> None:
    result = distributed(lambda body: [Stage(None, (made(body, "cos"),)), Stage(body.places, (body.ys[0],))])
    assert primitives_of(result).index("cos") < primitives_of(result).index("scan")


@pytest.mark.parametrize("in_memory", [False, True])
def test_results_may_be_written_first(in_memory: bool) -> None:
    result = distributed(lambda body: [Stage(body.places, (body.ys[0],), in_memory)])
    assert ("boundary" in primitives_of(result)) is in_memory


def test_numbers_that_steps_put_out_are_written_by_the_loop() -> None:
    """Beside what it carries, not by a kernel of their own."""

    def program(x: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return jnp.sin(c) + x, (c, 7, jnp.zeros((0,)))

        return lax.scan(step, x[0], x)

    assert len(j2t.transpile(program, jax.ShapeDtypeStruct((320, 64), np.float32), for_target="sm_90").kernels) == 1
    (_, (_, sevens, empty)), (_, expected) = j2t.fuse(program, backend="interpret")(X), jax.jit(program)(X)
    np.testing.assert_array_equal(sevens, expected[1])
    assert sevens.dtype == expected[1].dtype and empty.shape == expected[2].shape
