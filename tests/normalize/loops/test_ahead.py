"""What no other carried value has a part in is made a step ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton import policy
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.normalize.loops.ahead import make_ahead
from tests.normalize.loops.test_defer import arrays, close, prepared

(X,) = arrays((4,))
W = np.float32(0.3) * arrays((4, 4))[0]
KEY = jax.random.PRNGKey(7)
MANY = jax.random.split(KEY, 3)
STEPS = policy.COMMON.steps_worth_ahead


def layers(x: Any, noise: Any) -> Any:
    for _ in range(6):
        x = jnp.tanh(x + noise) * 0.9
    return x


def drawn(step: Callable[..., Any] = layers, steps: int = STEPS) -> Callable[..., Any]:
    def walk(x: Any, key: Any) -> Any:
        def one(carry: Any, _: Any) -> Any:
            x, key = carry
            key, own = jax.random.split(key)
            x = step(x, jax.random.normal(own, x.shape, x.dtype))
            return (x, key), jnp.sum(x)

        return lax.scan(one, (x, key), None, length=steps)

    return walk


def counted(x: Any, key: Any) -> Any:
    """What is drawn depends on the number of the step, which the loop counts as well."""

    def one(n: Any, x: Any) -> Any:
        return layers(x, jax.random.normal(jax.random.fold_in(key, n), x.shape))

    return lax.fori_loop(0, STEPS, one, x)


def counted_and_drawn(x: Any, key: Any) -> Any:
    def one(n: Any, carry: Any) -> Any:
        x, key = carry
        key, own = jax.random.split(key)
        return layers(x, jax.random.normal(own, x.shape) / (1 + n)), key

    return lax.fori_loop(0, STEPS, one, (x, key))


def until(x: Any, key: Any) -> Any:
    """It ends when what it makes says so, perhaps at once."""

    def one(carry: Any) -> Any:
        x, key, count = carry
        key, own = jax.random.split(key)
        return layers(x, jax.random.normal(own, x.shape)), key, count + 1

    return lax.while_loop(lambda carry: jnp.sum(carry[0]) < 1.5, one, (x, key, 0))


def accepted(x: Any, key: Any) -> Any:
    """Two draws of three keys, and a choice."""

    def one(carry: Any, _: Any) -> Any:
        x, key, last = carry
        key, walk, accept = jax.random.split(key, 3)
        moved = x + jax.random.normal(walk, x.shape)
        density = -jnp.sum(jax.nn.softplus(moved))
        good = jnp.log(jax.random.uniform(accept)) < density - last
        return (jnp.where(good, moved, x), key, jnp.where(good, density, last)), x

    return lax.scan(one, (x, key, jnp.float32(0)), None, length=STEPS)


def backwards(x: Any, key: Any) -> Any:
    def one(carry: Any, step: Any) -> Any:
        x, key = carry
        key, own = jax.random.split(key)
        return (layers(x, step + jax.random.normal(own, x.shape)), key), key

    return lax.scan(one, (x, key), jnp.linspace(0, 1, STEPS, dtype=x.dtype), reverse=True)


def handed_on_as_it_is(x: Any, key: Any) -> Any:
    """One value is what was drawn, and is read a step later."""

    def one(carry: Any, _: Any) -> Any:
        x, key, noise = carry
        key, own = jax.random.split(key)
        other = jax.random.normal(own, x.shape)
        return (layers(x, noise + other), key, other), noise

    return lax.scan(one, (x, key, jnp.zeros_like(x)), None, length=STEPS)


AHEAD: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (counted, counted_and_drawn, until, accepted, backwards, handed_on_as_it_is)
} | {
    "drawn": drawn(),
    "several of each": lambda x, key: jax.vmap(drawn())(jnp.stack([x, x + 1, x - 1]), MANY),
    "one key for several": lambda x, key: jax.vmap(drawn(), (0, None))(jnp.stack([x, x + 1, x - 1]), key),
    "gradient": lambda x, key: jax.grad(lambda x: drawn()(x, key)[1].sum())(x),
    "its last key is not read": lambda x, key: drawn()(x, key)[1],
}
LEFT: dict[str, Callable[..., Any]] = {
    "few steps": drawn(steps=STEPS - 1),
    "hardly waited for": drawn(lambda x, noise: x + noise),
    "many more numbers": drawn(lambda x, noise: layers(x, 0) + jnp.sum(jax.random.normal(KEY, (4, 100)) * noise[0])),
    "made of what it is for": lambda x, key: lax.scan(
        lambda c, _: (layers(c, jax.random.normal(jax.random.fold_in(key, c[0].astype(int)), c.shape)), None),
        *(x, None, STEPS),
    ),
    "read step by step": lambda x, key: lax.scan(
        lambda c, k: (layers(c, jax.random.normal(k, c.shape)), None), x, jax.random.split(key, STEPS)
    ),
    "it goes on as long as what it is for": lambda x, key: jax.vmap(until)(jnp.stack([x, x + 2, x - 1]), MANY),
    "soon there": lambda x, key: lax.fori_loop(0, STEPS, lambda n, c: layers(c, jnp.float32(n)), x),
}


def results(closed: Any) -> int:
    return sum(len(eqn.outvars) for eqn in closed.jaxpr.eqns if eqn.primitive.name in ("scan", "repeat"))


@pytest.mark.parametrize("name", AHEAD)
def test_it_carries_what_was_drawn(name: str) -> None:
    before = prepared(AHEAD[name], X, KEY)
    after = make_ahead(before)
    close(before, after, (X, KEY))
    assert results(after) > results(before)
    assert make_ahead(after) is after


@pytest.mark.parametrize("name", LEFT)
def test_it_is_left_alone(name: str) -> None:
    before = prepared(LEFT[name], X, KEY)
    assert make_ahead(before) is before


def test_so_many_lanes_have_something_to_do_anyway() -> None:
    x = jnp.zeros(2 * policy.COMMON.lanes_of_steps)
    before = prepared(drawn(), x, KEY)
    assert make_ahead(before) is before


@pytest.mark.parametrize("name", AHEAD)
def test_one_kernel_computes_the_same(name: str) -> None:
    function = AHEAD[name]
    found = j2t.fuse(function, backend="interpret", strict=True)(X, KEY)
    expected = jax.jit(function)(X, KEY)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    if name != "gradient":
        assert len(j2t.transpile(function, X, KEY).kernels) == 1


def test_a_step_is_shorter() -> None:
    """By machine code: what is drawn for the next step fills the time in which this one waits."""
    steps = []
    for worth in (policy.COMMON.worth_ahead, 1 << 20):
        with mock.patch.object(policy, "COMMON", replace(policy.COMMON, worth_ahead=worth)):
            jax.clear_caches()
            (kernel,) = j2t.transpile(drawn(steps=1000), X, KEY, for_target="sm_90").kernels
        steps.append(cycles_of(kernel, target_named("sm_90")).a_step)
    ahead, one_after_the_other = steps
    assert ahead < 0.85 * one_after_the_other
