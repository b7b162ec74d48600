"""Short loops in the steps of others: written out where their count says what they read, and otherwise as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse, policy
from jaxpr2triton.ir.jaxprs import jaxprs_in
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import traced

TABLE = np.linspace(-1.0, 1.0, 12, dtype=np.float32)
Fn = Callable[..., Any]
Inner = Callable[[Any, Any, Any], Any]


def in_steps(inner: Inner) -> Fn:
    def fn(x: Any, table: Any, number: Any) -> Any:
        return lax.scan(lambda x, _: (inner(x, table, number), None), x, None, 3)[0]

    fn.__name__ = inner.__name__
    return fn


def looked_up(start: Any, end: int, x: Any, table: Any) -> Any:
    """A step reads the table where the count says, and writes down what it makes."""

    def body(state: Any) -> Any:
        i, x, made = state
        x = jnp.cos(x) + table[i]
        return i + 1, x, made.at[:, i].set(x)

    _, x, made = lax.while_loop(lambda state: state[0] < end, body, (start, x, jnp.zeros((*x.shape, 12))))
    return x + made.sum(1)


@in_steps
def from_one(x: Any, table: Any, number: Any) -> Any:
    return looked_up(1, 5, x, table)


@in_steps
def from_none_or_one(x: Any, table: Any, number: Any) -> Any:
    return looked_up(jnp.where(jnp.any(x > 1.2), 0, 1), 5, x, table)


@in_steps
def from_one_or_none(x: Any, table: Any, number: Any) -> Any:
    return looked_up(jnp.where(jnp.any(x > 1.2), 1, 0), 5, x, table)


@in_steps
def perhaps_once(x: Any, table: Any, number: Any) -> Any:
    return looked_up(jnp.where(jnp.any(x > 1.2), 4, 5), 5, x, table)


@in_steps
def never(x: Any, table: Any, number: Any) -> Any:
    return looked_up(7, 5, x, table)


WRITTEN_OUT = [from_one, from_none_or_one, from_one_or_none, perhaps_once, never]


@in_steps
def from_a_number(x: Any, table: Any, number: Any) -> Any:
    return looked_up(number, 5, x, table)


@in_steps
def two_more_by_choice(x: Any, table: Any, number: Any) -> Any:
    return looked_up(jnp.where(jnp.any(x > 1.2), 0, 2), 5, x, table)


@in_steps
def two_flags(x: Any, table: Any, number: Any) -> Any:
    def go_on(state: Any) -> Any:
        return (state[0] < 5) & (state[1] < 5)

    def body(state: Any) -> Any:
        i, j, x = state
        return i + 1, j + 1, jnp.cos(x) + table[i] * table[j]

    start = jnp.where(jnp.any(x > 1.2), 0, 1), jnp.where(jnp.any(x < 0.1), 1, 0), x
    return lax.while_loop(go_on, body, start)[2]


@in_steps
def until_the_data_say_so(x: Any, table: Any, number: Any) -> Any:
    def body(state: Any) -> Any:
        i, x = state
        return i + 1, x + 1.0 + table[i]

    return lax.while_loop(lambda state: (state[0] < 5) & (state[1].sum() < 9), body, (0, x))[1]


@in_steps
def nothing_is_looked_up(x: Any, table: Any, number: Any) -> Any:
    return lax.while_loop(lambda state: state[0] < 5, lambda state: (state[0] + 1, jnp.cos(state[1])), (1, x))[1]


@in_steps
def long(x: Any, table: Any, number: Any) -> Any:
    return looked_up(1, policy.COMMON.few + 2, x, table)


LEFT = [from_a_number, two_more_by_choice, two_flags, until_the_data_say_so, nothing_is_looked_up, long]


def arguments(seed: int) -> tuple[Any, ...]:
    x = np.random.default_rng(seed).uniform(0, [1, 3][seed % 2], 5).astype(np.float32)
    return x, TABLE, np.int32(seed % 3)


def loops_left(fn: Fn) -> int:
    closed = normalize(traced(fn, *arguments(0)))
    bodies = [body for eqn in closed.jaxpr.eqns for body in jaxprs_in(eqn)]
    return sum(eqn.primitive is repeat_p for body in bodies for eqn in body.eqns)


@pytest.mark.parametrize("fn", WRITTEN_OUT, ids=lambda fn: fn.__name__)
def test_written_out(fn: Fn) -> None:
    assert loops_left(fn) == 0


@pytest.mark.parametrize("fn", LEFT, ids=lambda fn: fn.__name__)
def test_left_alone(fn: Fn) -> None:
    assert loops_left(fn) == 1


@pytest.mark.parametrize("fn", [*WRITTEN_OUT, *LEFT], ids=lambda fn: fn.__name__)
def test_values(fn: Fn) -> None:
    fused = fuse(fn, backend="interpret")
    for seed in range(4):
        expected = jax.jit(fn)(*arguments(seed))
        np.testing.assert_allclose(fused(*arguments(seed)), expected, rtol=1e-5, atol=1e-5)


def test_no_loop_in_a_step_is_written_out_beyond_a_number_of_equations() -> None:
    @in_steps
    def wide(x: Any, table: Any, number: Any) -> Any:
        def body(state: Any) -> Any:
            i, x = state
            for _ in range(policy.COMMON.equations_written_out // 8):
                x = jnp.cos(x) * 0.5 + table[i]
            return i + 1, x

        return lax.while_loop(lambda state: state[0] < 8, body, (0, x))[1]

    assert loops_left(wide) == 1
