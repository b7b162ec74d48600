"""Logarithms of sums of exponentials, one in the other, are one of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.loops.logs_of_sums import join_logs
from tests.normalize.passing import outputs, primitives_of, traced

RNG = np.random.default_rng(11)
SPECIAL = [0.0, -0.0, 1.0, -1e5, 80.0, np.inf, -np.inf, np.nan]


def of_three(a: Any, b: Any, c: Any) -> Any:
    return jnp.logaddexp(jnp.logaddexp(a, b), c)


def of_five(a: Any, b: Any, c: Any) -> Any:
    return jnp.logaddexp(jnp.logaddexp(a, jnp.logaddexp(b, c)), jnp.logaddexp(c, -b))


def beside_a_number(a: Any, b: Any, c: Any) -> Any:
    return jnp.logaddexp(-1e5, jnp.logaddexp(a, b)) + c


def read_twice(a: Any, b: Any, c: Any) -> Any:
    inner = jnp.logaddexp(a, b)
    return jnp.logaddexp(inner, c) + inner


def both(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    before = inline_calls(traced(function, *args))
    return before, inline_calls(join_logs(before))


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("function", [of_three, of_five, beside_a_number])
def test_they_are_one(function: Callable[..., Any]) -> None:
    args = [RNG.normal(size=33).astype(np.float32) for _ in range(3)]
    before, after = both(function, *args)
    assert after is not before
    close(*(outputs(each, args)[0] for each in (after, before)))


@pytest.mark.parametrize("function", [of_three, beside_a_number])
def test_what_is_not_finite_or_far_apart(function: Callable[..., Any]) -> None:
    args = [np.ravel(each).astype(np.float32) for each in np.meshgrid(SPECIAL, SPECIAL, SPECIAL)]
    close(*(outputs(each, args)[0] for each in both(function, *args)))


def test_digits_of_what_is_small_stay() -> None:
    args = [np.full(5, number, np.float32) for number in (0.0, -20.0, -21.0)]
    _, after = both(of_three, *args)
    exact = np.log1p(np.exp(-20.0) + np.exp(-21.0))
    np.testing.assert_allclose(outputs(after, args)[0], exact, rtol=1e-6)


def test_what_others_read_and_halves_stay() -> None:
    args = [RNG.normal(size=7).astype(np.float32) for _ in range(3)]
    before = inline_calls(traced(read_twice, *args))
    assert join_logs(before) is before
    pair = inline_calls(traced(jnp.logaddexp, *args[:2]))
    assert join_logs(pair) is pair


def test_steps_wait_for_one() -> None:
    def function(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            back = jnp.concatenate([jnp.full(1, -jnp.inf, c.dtype), c[:-1]])
            return jnp.logaddexp(jnp.logaddexp(c, back), jnp.sin(c)) + x, None

        return lax.scan(step, c, xs)[0]

    c, xs = RNG.normal(size=21).astype(np.float32), RNG.normal(size=(9, 21)).astype(np.float32)
    source = j2t.transpile(function, c, xs).source
    assert source.count("libdevice.log1p(") * 2 == source.count("libdevice.exp("), source
    for backend in ("interpret", "machine"):
        close(j2t.fuse(function, backend=backend, strict=True)(c, xs), jax.jit(function)(c, xs))
    with jax.enable_x64(True):
        wide = c.astype(np.float64), xs.astype(np.float64)
        found, wanted = j2t.fuse(function, backend="interpret", strict=True)(*wide), jax.jit(function)(*wide)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    joined = primitives_of(join_logs(inline_calls(traced(of_three, c, c, c))))
    assert len([name for name in joined if name in ("closed_call", "eval_jaxpr")]) == 1  # by the version of JAX


def test_so_do_those_of_a_gradient() -> None:
    """What its second loop needs is computed again there, so that nothing else reads the first sum in the first one."""

    def loss(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return of_three(c, jnp.pad(c[:-1], (1, 0)), x), None

        return lax.scan(step, c, xs)[0].sum()

    c, xs = RNG.normal(size=21).astype(np.float32), RNG.normal(size=(9, 21)).astype(np.float32)
    assert "smaller_2 = tl.minimum(" in j2t.transpile(jax.grad(loss), c, xs).source
    found = j2t.fuse(jax.grad(loss), backend="interpret", strict=True)(c, xs)
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(c, xs), rtol=1e-5, atol=1e-6)
