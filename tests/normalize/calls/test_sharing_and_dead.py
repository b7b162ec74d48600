"""Nothing is computed twice, and nothing for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton._compat import user_frame
from jaxpr2triton.ir.jaxprs import frozen
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.calls.sharing import share_equal
from tests.normalize.passing import after, primitives_of, traced

X = np.array([0.5, -1.5, 2.0], np.float32)


def test_sharing_before_and_after() -> None:
    assert str(after(share_equal, lambda x: lax.exp(x) * 2 + lax.exp(x) * 2, X)) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = exp a\n"
        "    c:f32[3] = mul b 2.0:f32[]\n"
        "    d:f32[3] = add c c\n"
        "  in (d,) }"
    )


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: (x + 1) * (1 + x), 2),
        (lambda x: (x - 1) * (1 - x), 3),
        (lambda x: x * 0.0 + x * -0.0, 3),
        (lambda x: x * np.nan + x * np.nan, 2),
        (lambda x: jnp.stack([x, x]) + jnp.stack([x, x]), 2),
        (lambda x: lax.integer_pow(x, 2) + lax.integer_pow(x, 3), 3),
        (lambda x: lax.reduce_max(x, [0]) + lax.reduce_max(x, [0]), 2),
        (lambda x: jnp.sort(x) + jnp.sort(x), None),
        (lambda x: lax.iota(np.int32, 3) + lax.iota(np.int32, 3), 2),
    ],
)
def test_what_is_equal(function: Callable[[Any], Any], count: int | None) -> None:
    result = after(share_equal, function, X)
    if count is not None:
        assert len(result.jaxpr.eqns) == count


def test_the_first_line_stays() -> None:
    def user(x: Any) -> Any:
        first = lax.exp(x)
        second = lax.exp(x)
        return first + second

    frames = [user_frame(eqn) for eqn in share_equal(traced(user, X)).jaxpr.eqns]
    start = user.__code__.co_firstlineno
    assert [frame.line for frame in frames if frame is not None] == [start + 1, start + 3]


def test_equal_numbers_of_different_types_differ() -> None:
    keys = [frozen(value) for value in (1, 1.0, True, (1,), [1], {"a": 1}, np.array([1]), np.float32(1))]
    assert len(set(keys)) == len(keys)
    assert frozen(np.int64(1)) == frozen(1)
    assert frozen({"b": 1, "a": np.ones(2)}) == frozen({"a": np.ones(2), "b": 1})


def test_random_bits_of_one_key_are_equal() -> None:
    result = after(share_equal, lambda k: jax.random.bits(k, (3,)) + jax.random.bits(k, (3,)), jax.random.key(0))
    assert len(result.jaxpr.eqns) <= 3


def test_dead_before_and_after() -> None:
    def function(x: Any) -> Any:
        lax.sin(lax.cos(x))
        return lax.exp(x)

    assert str(after(remove_dead, function, X)) == "{ lambda ; a:f32[3]. let b:f32[3] = exp a in (b,) }"


def test_inputs_stay_and_live_programs_are_returned_as_they_are() -> None:
    before = traced(lambda x, unused: lax.sin(x), X, X)
    assert remove_dead(before) is before


def test_constants_of_the_program_stay() -> None:
    def function(x: Any) -> Any:
        lax.sin(x * X)
        return x + X

    before = traced(function, X)
    result = remove_dead(before)
    assert primitives_of(result) == ["add"]
    assert [const.tolist() for const in result.consts] == [X.tolist()]
    np.testing.assert_array_equal(jax.core.eval_jaxpr(result.jaxpr, result.consts, X)[0], X + X)


def test_effects_are_neither_shared_nor_dead(capfd: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        for _ in range(2):
            jax.debug.print("seen {}", x[0], ordered=True)
            lax.cos(x)
        return x

    result = remove_dead(share_equal(traced(function, X)))
    assert primitives_of(result).count("debug_print") == 2
    assert "cos" not in primitives_of(result)
    jax.block_until_ready(jax.core.eval_jaxpr(result.jaxpr, [], X))
    jax.effects_barrier()
    assert capfd.readouterr().out == "seen 0.5\nseen 0.5\n"
