"""Sums that no step waits for, of what is spread out or keeps lanes together, taken after the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.loops.bodies import normalize_bodies
from jaxpr2triton.normalize.loops.sums_apart import sums_apart
from jaxpr2triton.normalize.passes import normalize
from tests.normalize.passing import outputs, traced

RNG = np.random.default_rng(7)


def chosen(length: int, places: int, wide: int, uses: Callable[[Any, Any], Any] = lambda c, total: c) -> Any:
    """A loop that adds what it carries up at computed places, and its arguments."""
    where = RNG.integers(0, places, wide, dtype=np.int32)

    def function(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.sin(c + x)
            total = jnp.zeros(places).at[where].add(c)
            return uses(c, total), total

        return lax.scan(step, c, xs)

    return function, RNG.normal(size=wide).astype(np.float32), RNG.normal(size=(length, wide)).astype(np.float32)


def prepared(function: Any, *args: Any) -> Any:
    return normalize_bodies(normalize(traced(function, *args), loops=False), normalize)


def sums_in_steps(closed: Any) -> int:
    scans = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    return sum(eqn.primitive.name == "reduce_sum" for scan in scans for eqn in scan.params["jaxpr"].jaxpr.eqns)


@pytest.mark.parametrize("wide", [41, 10_000])
def test_it_is_taken_after_the_loop(wide: int) -> None:
    function, *args = chosen(40, 32, wide)
    before = prepared(function, *args)
    after = sums_apart(before)
    assert (sums_in_steps(before), sums_in_steps(after)) == (1, 0)
    for expected, found in zip(outputs(before, args), outputs(after, args), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "case",
    [
        chosen(40, 32, 41, uses=lambda c, total: c + total[3]),  # a step reads it
        chosen(4, 8, 9),  # it is little
        chosen(40, 4, 41),  # it is not spread out
    ],
)
def test_it_stays(case: Any) -> None:
    function, *args = case
    before = prepared(function, *args)
    assert sums_apart(before) is before


def test_the_gradient_of_what_is_read_at_computed_places() -> None:
    """That is such a sum, of which no step has anything."""

    def function(xs: Any, where: Any) -> Any:
        def loss(xs: Any, where: Any) -> Any:
            def step(c: Any, x: Any) -> Any:
                return jnp.tanh(c + x[where]), None

            return lax.scan(step, xs[0][where], xs[1:])[0].sum()

        return jax.vmap(jax.grad(loss))(xs, where)

    xs = RNG.normal(size=(3, 30, 32)).astype(np.float32)
    where = RNG.integers(0, 32, (3, 41), dtype=np.int32)
    made = j2t.transpile(function, xs, where)
    loops = [kernel for kernel in made.kernels if any(axis.role.name == "LOOP" for axis in kernel.axes)]
    assert [kernel.source.count("tl.reduce(") for kernel in loops[:1]] == [0], made.source
    for backend in ("interpret", "machine"):
        found = j2t.fuse(function, backend=backend, strict=True)(xs, where)
        np.testing.assert_allclose(found, jax.jit(function)(xs, where), rtol=1e-5, atol=1e-5)


MANY = 4096


def with_lanes(put_out: Callable[[Any, Any], Any], couple: Callable[[Any], Any] = jnp.sin) -> Any:
    """A loop that many lanes go through, and its arguments."""

    def function(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = couple(c * x)
            return c, put_out(c, x)

        return lax.scan(step, c, xs)

    return function, RNG.normal(size=MANY).astype(np.float32), RNG.normal(size=5).astype(np.float32)


def reductions_in_steps(closed: Any) -> int:
    scans = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    bodies = [eqn.primitive.name for scan in scans for eqn in scan.params["jaxpr"].jaxpr.eqns]
    return sum(name.startswith(("reduce_", "arg")) and name != "reduce_precision" for name in bodies)


@pytest.mark.parametrize(
    "put_out",
    [
        lambda c, x: (c * x).sum(),
        lambda c, x: (c.max(), jnp.argmin(c)),
        lambda c, x: c.var(),  # a sum that waits for another one
        lambda c, x: jax.nn.softmax(c)[:3],  # lanes that wait for a sum
        lambda c, x: (jnp.sin(c), c.sum() + x),
    ],
    ids=["sum", "places", "variance", "softmax", "beside"],
)
def test_what_keeps_lanes_together_is_taken_after_the_loop(put_out: Any) -> None:
    function, *args = with_lanes(put_out)
    before = prepared(function, *args)
    after = sums_apart(before)
    assert reductions_in_steps(before) > 0 == reductions_in_steps(after)
    for expected, found in zip(outputs(before, args), outputs(after, args), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "case",
    [
        with_lanes(lambda c, x: c.sum(), couple=lambda c: c - c.mean()),  # lanes meet for the next step, too
        with_lanes(lambda c, x: jnp.cumsum(jnp.broadcast_to(c, (16, MANY)), 0).max(1)),  # much would be written
        with_lanes(lambda c, x: c.reshape(-1, 8).sum(1), couple=lambda c: jnp.cumsum(c.reshape(-1, 8), 1).reshape(-1)),
    ],
    ids=["met anyway", "much to write", "rows"],
)
def test_what_sets_no_lanes_free_stays(case: Any) -> None:
    function, *args = case
    before = prepared(function, *args)
    assert sums_apart(before) is before


def test_few_lanes_stay_together() -> None:
    function, c, xs = with_lanes(lambda c, x: c.sum())
    before = prepared(function, c[:1000], xs)
    assert sums_apart(before) is before


def test_lanes_of_programs_enough_stay_together() -> None:
    function, c, xs = with_lanes(lambda c, x: c.sum())
    before = prepared(jax.vmap(function, (0, None)), jnp.broadcast_to(c, (200, MANY)), xs)
    assert sums_apart(before) is before
