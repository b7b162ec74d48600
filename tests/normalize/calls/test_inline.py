"""Calls are written out; what means more than its jaxpr stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.custom_batching import custom_vmap

from jaxpr2triton._compat import CALLS, user_frame
from jaxpr2triton.normalize.calls.inline import inline_calls
from tests.normalize.passing import after, primitives_of, traced
from tests.programs import clipped_log, nested_calls, straight_through

X = np.array([0.5, -1.5, 2.0], np.float32)


def test_before_and_after() -> None:
    @jax.jit
    def helper(x: Any) -> Any:
        return jax.nn.relu(x) * 2

    before = traced(lambda x: helper(x) + 1, X)
    assert primitives_of(before) == ["jit", "add"]
    assert str(inline_calls(before)) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = max a 0.0:f32[]\n"
        "    c:f32[3] = mul b 2.0:f32[]\n"
        "    d:f32[3] = add c 1.0:f32[]\n"
        "  in (d,) }"
    )


@custom_vmap
def doubled(x: Any) -> Any:
    return x * 2


@doubled.def_vmap
def _doubled_vmap(axis_size: int, in_batched: list[bool], x: Any) -> tuple[Any, bool]:
    return x * 2, True


@pytest.mark.parametrize("function", [clipped_log, straight_through, nested_calls, doubled, jax.nn.gelu, jax.nn.silu])
def test_every_kind_of_call(function: Callable[[Any], Any]) -> None:
    assert CALLS.isdisjoint(primitives_of(after(inline_calls, function, X)))


def test_a_function_as_a_primitive() -> None:
    inner = jax.make_jaxpr(lambda x: x * 3)(X)
    before = traced(jax.extend.core.jaxpr_as_fun(inner), X)
    assert primitives_of(inline_calls(before)) == ["mul"]


def test_programs_without_calls_are_returned_as_they_are() -> None:
    before = traced(lambda x: jnp.sin(x) + 1, X)
    assert inline_calls(before) is before


def test_bodies_of_loops_stay() -> None:
    def looped(x: Any) -> Any:
        return lax.scan(lambda c, t: (jax.nn.relu(c) + t, c), x[0], x)[1]

    before = traced(lambda x: jax.jit(looped)(x), X)
    assert primitives_of(inline_calls(before))[-1] == "scan"


def test_a_call_that_asks_for_a_sharding_stays() -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    before = traced(jax.jit(jnp.sin, out_shardings=here), X)
    assert inline_calls(before) is before


def test_arrays_inside_calls_stay_there_and_scalars_become_literals() -> None:
    scalar, array = jnp.float32(2), jnp.arange(3.0)
    result = after(inline_calls, lambda x: jax.jit(lambda x: jax.jit(lambda x: x * array)(x) + 1)(x) + jnp.sinh(x), X)
    assert "jit" in primitives_of(result)
    result = after(inline_calls, lambda x: jax.jit(lambda x: x * scalar)(x), X)
    assert str(result) == "{ lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }"


def helper_with_a_line(x: Any) -> Any:
    return jnp.sinh(x) + 1


def test_lines_are_those_of_the_user() -> None:
    called = jax.jit(helper_with_a_line)

    def user(x: Any) -> Any:
        first = jnp.where(x > 0, x, 0.0)
        return called(jnp.where(first < 1, first, 1.0))

    frames = [user_frame(eqn) for eqn in inline_calls(traced(user, X)).jaxpr.eqns]
    start = user.__code__.co_firstlineno
    lines = [(frame.function.split(".")[-1], frame.line) for frame in frames if frame is not None]
    assert len(lines) == len(frames)
    assert sorted(set(lines)) == [
        ("helper_with_a_line", helper_with_a_line.__code__.co_firstlineno + 1),
        ("user", start + 1),
        ("user", start + 2),
    ]
