"""What is affine in a loop that is not gets loops of its own, before and after the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.passes import PARTS, normalize
from tests.normalize.passing import traced

RNG = np.random.default_rng(11)
STEPS, LANES = 256, 3


def softplus(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


def last(x: Any, c: Any, us: Any, reverse: bool = False) -> Any:
    """What reads the others, and is read by nothing."""

    def step(carry: Any, u: Any) -> Any:
        x, c = carry
        x = jnp.tanh(x) * 0.9 + u
        c = jnp.exp(-x * x) * c + softplus(x)
        return (x, c), c

    return lax.scan(step, (x, c), us, reverse=reverse)


def first(x: Any, c: Any, us: Any) -> Any:
    """What reads nothing of the others."""

    def step(carry: Any, u: Any) -> Any:
        x, c = carry
        c = jax.nn.sigmoid(u) * c + softplus(u)
        return (jnp.tanh(0.9 * x + jnp.exp(-jnp.abs(c))), c), (x, c)

    return lax.scan(step, (x, c), us, reverse=True)


def before_and_after(x: Any, c: Any, us: Any) -> Any:
    """Both, of two values each; one is moved on, one never changes, one only counts."""

    def step(carry: Any, u: Any) -> Any:
        x, c, d, e, f, old, same, count = carry
        c, d = 0.5 * d + jax.nn.sigmoid(u), c * jnp.exp(-softplus(u))
        x = jnp.tanh(x * same + jnp.exp(-jnp.abs(c)) + old)
        e = 0.9 * e + softplus(x + d)
        f = f * jax.nn.sigmoid(x) + jnp.exp(-e * e)
        return (x, c, d, e, f, u, same, count + 1), (f + x, 2.0, u, c * count)

    return lax.scan(step, (x, c, -c, c, c, x, 0 * x + 0.5, 0), us)


def summed(x: Any, c: Any, us: Any) -> Any:
    def step(carry: Any, u: Any) -> Any:
        x, c, total = carry
        x = jnp.tanh(x) * 0.9 + u
        c = 0.9 * c + 0.1 * x
        return (x, c, total + softplus(softplus(c))), c.sum()

    return lax.scan(step, (x, c, c), us)


def between(x: Any, c: Any, us: Any) -> Any:
    """What is affine, but read by what it reads, stays."""

    def step(carry: Any, u: Any) -> Any:
        x, c, d = carry
        x = jnp.tanh(x + 0.5 * c) + u
        c = 0.5 * c + softplus(x)
        d = 0.25 * d + softplus(softplus(c))
        return (x, c, d), d

    return lax.scan(step, (x, c, c), us)


def network(x: Any, c: Any, us: Any) -> Any:
    weights = jnp.cos(jnp.arange(x.shape[-1] ** 2, dtype=jnp.float32)).reshape(x.shape[-1], -1) / 2

    def step(carry: Any, u: Any) -> Any:
        x, c = carry
        x = jnp.tanh(x @ weights + u)
        c = jax.nn.sigmoid(x) * c + jnp.exp(-x)
        return (x, c), (c * c).sum(-1)

    return lax.scan(step, (x, c), us)


FUNCTIONS = (last, first, before_and_after, summed, between, network)


def inputs(lanes: tuple[int, ...] = (LANES,), steps: int = STEPS) -> list[np.ndarray]:
    return [RNG.normal(size=shape).astype(np.float32) * np.float32(0.8) for shape in (lanes, lanes, (steps, *lanes))]


def loops_of(function: Callable[..., Any], *args: Any) -> int:
    closed = normalize(traced(function, *args), loops=False)
    return sum(eqn.primitive.name == "scan" for eqn in PARTS.run(closed).jaxpr.eqns)


def compared(function: Callable[..., Any], *args: Any, backend: Any = "interpret") -> None:
    expected, found = jax.jit(function)(*args), j2t.fuse(function, backend=backend, strict=True)(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(ours), np.asarray(theirs)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
        np.testing.assert_allclose(one, other, 3e-5, 3e-5 * scale + 1e-7)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("lanes", "steps"), [((LANES,), STEPS), ((2, 3), 257)], ids=str)
def test_values_are_those_of_one_loop(function: Callable[..., Any], lanes: tuple[int, ...], steps: int) -> None:
    args = inputs(lanes, steps)
    assert loops_of(function, *args) == (3 if function is before_and_after else 2)
    compared(function, *args)


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_few_steps_are_one_loop(function: Callable[..., Any], steps: int) -> None:
    args = inputs(steps=steps)
    assert loops_of(function, *args) == 1
    compared(function, *args)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients(function: Callable[..., Any]) -> None:
    def loss(*args: Any) -> Any:
        floats = (x for x in jax.tree.leaves(function(*args)) if jnp.issubdtype(x.dtype, jnp.floating))
        return sum((jnp.tanh(x / 8) * jnp.cos(jnp.arange(x.size)).reshape(x.shape)).sum() for x in floats)

    compared(jax.grad(loss, (0, 1, 2)), *inputs())


@pytest.mark.parametrize("value", [np.inf, np.nan], ids=str)
@pytest.mark.parametrize("function", [last, first], ids=lambda f: f.__name__)
def test_what_is_no_number_is_where_steps_have_it(function: Callable[..., Any], value: float) -> None:
    for place in range(3):
        args = inputs()
        args[place][1, ...] = value
        compared(function, *args)


def test_in_the_other_direction_and_in_a_batch() -> None:
    x, c, us = inputs((4, 2))
    compared(lambda *args: last(*args, reverse=True), x, c, us)
    compared(jax.vmap(last, (0, 0, 1)), x, c, us)


def test_scalars_and_doubles() -> None:
    compared(last, *inputs(()))
    with jax.enable_x64(True):
        args = [x.astype(np.float64) for x in inputs()]
        assert loops_of(last, *args) == 2
        compared(last, *args)


@pytest.mark.compile
@pytest.mark.parametrize("function", [last, first], ids=lambda f: f.__name__)
def test_compiled(function: Callable[..., Any]) -> None:
    compared(function, *inputs((40,), 160), backend="machine")


def test_an_exact_order_is_one_loop() -> None:
    args = inputs()
    assert sum(e.primitive.name == "scan" for e in normalize(traced(last, *args), exact_order=True).jaxpr.eqns) == 1


@pytest.mark.parametrize(
    "step",
    [
        lambda x, c, u: (jnp.tanh(x) + u, 0.9 * c + 0.1 * x),  # soon made
        lambda x, c, u: (jnp.tanh(x) + u, c + 1),
        lambda x, c, u: (jnp.tanh(x) + u * c, c + 1),
        lambda x, c, u: (jnp.tanh(x + c), c * jax.nn.sigmoid(u)),  # not waited for
        lambda x, c, u: (jnp.tanh(x + c), softplus(x) + softplus(c)),  # each reads the other one
        lambda x, c, u: (jnp.tanh(x), c + softplus(softplus(x))),  # only summed
        lambda x, c, u: (jnp.tanh(x), (0.5 * c + softplus(x)).astype(jnp.bfloat16).astype(jnp.float32)),
        lambda x, c, u: (0.5 * x + u, 0.5 * c + softplus(x)),  # all of it is affine
    ],
)
def test_what_is_left_alone(step: Callable[..., Any]) -> None:
    x, c, us = inputs()
    assert loops_of(lambda *args: lax.scan(lambda s, u: (step(*s, u), s[0]), args[:2], args[2]), x, c, us) == 1


def test_many_lanes_are_one_loop() -> None:
    assert loops_of(last, *inputs((20000,), 256)) == 1
