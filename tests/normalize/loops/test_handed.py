"""What a step computes at its end and the next one at its beginning is carried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.normalize.loops.handed import hand_on
from tests.normalize.loops.test_defer import arrays, close, prepared

X, V = arrays((3, 4), (3, 4))
(W,) = arrays((4, 4))


def slope(x: Any) -> Any:
    return jnp.tanh(x @ W) - x


def leap(carry: Any, _: Any) -> Any:
    x, v = carry
    v = v + 0.05 * slope(x)
    x = x + 0.1 * v
    return (x, v + 0.05 * slope(x)), v


def leapfrog(x: Any, v: Any) -> Any:
    return lax.scan(leap, (x, v), None, length=5)


def backwards(x: Any, v: Any) -> Any:
    return lax.scan(leap, (x, v), jnp.arange(5.0), reverse=True)


def counted(x: Any, v: Any) -> Any:
    return lax.fori_loop(0, 5, lambda n, carry: leap(carry, n)[0], (x, v))


def until(x: Any, v: Any) -> Any:
    """The length is not known, and all lanes stop together."""
    return lax.while_loop(lambda c: jnp.sum(c[0][0] ** 2) < 40.0, lambda c: (leap(c[0], 0)[0], c[1] + 1), ((x, v), 0))


def first_same_as_last(x: Any, v: Any) -> Any:
    """Bogacki and Shampine's method: the fourth stage is the first one of the next step."""

    def step(x: Any, _: Any) -> Any:
        first = slope(x)
        second = slope(x + 0.05 * first)
        third = slope(x + 0.075 * second)
        after = x + 0.1 * (2 * first + 3 * second + 4 * third) / 9
        error = 0.1 * (-5 * first / 72 + second / 12 + third / 9 - slope(after) / 8)
        return after, jnp.max(jnp.abs(error)) + v[0, 0]

    return lax.scan(step, x, None, length=6)


def accepted(x: Any, v: Any) -> Any:
    """A step is taken or not, for all of the state."""

    def step(carry: Any, level: Any) -> Any:
        x, v = carry
        (moved, turned), _ = leap(carry, None)
        good = jnp.sum(slope(moved) ** 2) < level
        return (jnp.where(good, moved, x), jnp.where(good, turned, v)), jnp.sum(x)

    return lax.scan(step, (x, v), jnp.linspace(2.0, 8.0, 9, dtype=x.dtype))


def energies(x: Any, key: Any) -> Any:
    """Metropolis without the trick: the density of where the chain stands is computed anew."""

    def density(x: Any) -> Any:
        return -jnp.sum(jax.nn.softplus(W @ x))

    def step(carry: Any, _: Any) -> Any:
        x, key = carry
        key, walk, accept = jax.random.split(key, 3)
        moved = x + jax.random.normal(walk, x.shape, x.dtype)
        good = jnp.log(jax.random.uniform(accept)) < density(moved) - density(x)
        return (jnp.where(good, moved, x), key), x

    return lax.scan(step, (x, key), None, length=6)


def each(x: Any, v: Any) -> Any:
    """Lanes stop by themselves."""
    return jax.vmap(lambda *c: lax.while_loop(lambda c: jnp.sum(c[0] ** 2) < 20.0, lambda c: leap(c, 0)[0], c))(x, v)


USED: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (leapfrog, backwards, counted, until, first_same_as_last, accepted, each)
} | {
    "energies": lambda x, v: energies(x[0], jax.random.key(3))[0][0],
    "energies of many": lambda x, v: jax.vmap(energies)(x, jax.random.split(jax.random.key(3), 3))[0][0],
    "transposed": lambda x, v: jax.vmap(leapfrog, in_axes=1, out_axes=1)(jnp.stack([x, v], 1), jnp.stack([v, x], 1)),
}


def handed(function: Callable[..., Any], *args: Any) -> int:
    """How many values the loops carry besides."""
    before = prepared(function, *args)
    after = hand_on(before)
    close(before, after, args)
    assert hand_on(after) is after
    return _results(after) - _results(before)


def _results(closed: Any) -> int:
    return sum(len(eqn.outvars) for eqn in closed.jaxpr.eqns if eqn.primitive.name in ("scan", "repeat"))


@pytest.mark.parametrize("name", USED)
def test_it_is_carried(name: str) -> None:
    assert handed(USED[name], X, V) >= 1


@pytest.mark.parametrize("name", USED)
def test_its_values(name: str) -> None:
    function = USED[name]
    got = jax.jit(j2t.fuse(function, backend="interpret"))(X, V)
    for ours, right in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(function)(X, V)), strict=True):
        np.testing.assert_allclose(ours, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["leapfrog", "first_same_as_last", "accepted", "transposed"])
def test_gradients(name: str) -> None:
    def total(x: Any, v: Any) -> Any:
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(USED[name](x, v)))

    got = jax.jit(jax.grad(j2t.fuse(total, backend="interpret"), (0, 1)))(X, V)
    for ours, right in zip(got, jax.jit(jax.grad(total, (0, 1)))(X, V), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-4)


def _driven(x: Any, v: Any) -> Any:
    """The slope depends on what is read in a step: the next one reads something else."""

    def step(carry: Any, force: Any) -> Any:
        x, v = carry
        v = v + 0.05 * slope(x + force)
        x = x + 0.1 * v
        return (x, v + 0.05 * slope(x + force)), None

    return lax.scan(step, (x, v), V)[0]


def _other_place(x: Any, v: Any) -> Any:
    """The second slope is not taken at what is carried on."""

    def step(carry: Any, _: Any) -> Any:
        x, v = carry
        moved = x + 0.1 * (v + 0.05 * slope(x))
        return (moved * 0.9, v + slope(moved)), None

    return lax.scan(step, (x, v), None, length=4)[0]


def _mixed_choice(x: Any, v: Any) -> Any:
    """Each row is taken or not, and the slope mixes rows."""

    def step(x: Any, _: Any) -> Any:
        moved = x + 0.1 * jnp.sin(x[::-1])
        return jnp.where(jnp.sum(jnp.sin(moved[::-1]), 1, keepdims=True) < 0, moved, x), None

    return lax.scan(step, x, None, length=4)[0]


def _by_turns(x: Any, v: Any) -> Any:
    """Two carried values change places by themselves: the choice of one says nothing of the other."""

    def step(carry: Any, _: Any) -> Any:
        x, v = carry
        first, second = jnp.sum(x) < jnp.sum(v), jnp.sum(x * v) < 0
        moved, turned = x + 0.1 * jnp.sin(x * v), v - 0.1
        good = jnp.sum(jnp.sin(moved * turned))
        return (jnp.where(first, moved, x), jnp.where(second, turned, v)), good

    return lax.scan(step, (x, v), None, length=4)[0]


def _cheap(x: Any, v: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        x, v = carry
        x = x + 2 * v
        return (x, v - x), 2 * (v - x)

    return lax.scan(step, (x, v), None, length=4)


@pytest.mark.parametrize("function", [_driven, _other_place, _mixed_choice, _by_turns, _cheap])
def test_what_is_computed_again(function: Callable[..., Any]) -> None:
    assert handed(function, X, V) == 0


def test_a_whole_slope_is_carried_and_nothing_else() -> None:
    """Of all that leads to the slope, as few numbers as there are."""
    after = hand_on(prepared(leapfrog, X, V))
    (scan,) = (eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "scan")
    _, carried = scan_counts_of(scan.params)
    assert [var.aval.shape for var in scan.outvars[:carried]] == [(3, 4)] * 3
    assert [eqn.primitive.name for eqn in scan.params["jaxpr"].eqns].count("dot_general") == 1
