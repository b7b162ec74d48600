"""What depends on what in a loop, on drawn bodies against what following every path finds."""

from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxpr2triton.ir.jaxprs import Literal
from jaxpr2triton.ir.scans import Body, body_of


def body_with(step: Any, num_carry: int) -> Body:
    """The body of a scan over numbers, with one x; what it closes over is a constant."""
    carried = tuple(jnp.float32(n) for n in range(num_carry))
    closed = jax.make_jaxpr(lambda c, a, xs: lax.scan(lambda c, x: step(c, a, x), c, xs))(carried, 2.0, jnp.zeros(3))
    (scan,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    return body_of(scan.params)


def example() -> Body:
    def step(carry: Any, a: Any, x: Any) -> Any:
        n, c, s = carry
        y = jnp.sin(n) + x
        z = y * c + jnp.cos(a)
        return (y, z, s + z), z

    return body_with(step, 3)


def test_places() -> None:
    found = example().dependences
    assert dict(found.needs) == {0: {0}, 1: {0, 1}, 2: {0, 1, 2}}
    assert found.recurrences == [(0,), (1,), (2,)]


def test_values() -> None:
    body = example()
    found = body.dependences
    made = {eqn.primitive.name: eqn.outvars[0] for eqn in body.jaxpr.eqns}
    made = {name: made[name] for name in ("sin", "cos", "mul")}
    assert {name: found.reached_by[var] for name, var in made.items()} == {"sin": {0}, "cos": set(), "mul": {0, 1}}
    assert {name for name, var in made.items() if var in found.invariant} == {"cos"}
    assert all(found.definitions[var].primitive.name == name for name, var in made.items())
    assert not found.reached_by[body.xs[0]] and found.invariant.issuperset(body.consts)


def test_what_is_carried_waits_for() -> None:
    body = body_with(lambda c, a, x: ((c[0] * x,), jnp.sin(c[0])), 1)
    names = {body.dependences.definitions[var].primitive.name for var in body.dependences.waited_for}
    assert names == {"mul"}


def test_values_that_depend_on_each_other_come_after_those_that_they_need() -> None:
    body = body_with(lambda c, a, x: ((c[1] + c[2], c[0] * x, c[2] + 1, 0.0), None), 4)
    assert body.dependences.recurrences == [(2,), (0, 1), (3,)]
    assert dict(body.dependences.needs) == {0: {1, 2}, 1: {0}, 2: {2}, 3: set()}


@pytest.mark.parametrize("seed", range(20))
def test_drawn_bodies(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    chosen = [[rng.randrange(count) for _ in range(rng.randint(0, 3))] for _ in range(count)]

    def step(carry: Any, a: Any, x: Any) -> Any:
        return tuple(sum((carry[n] * a for n in each), x) for each in chosen), None

    found = body_with(step, count).dependences
    assert {place: set(needs) for place, needs in found.needs.items()} == dict(enumerate(map(set, chosen)))

    def below(place: int) -> set[int]:
        reached, waiting = set[int](), [place]
        while waiting:
            more = set(chosen[waiting.pop()]) - reached
            reached |= more
            waiting += more
        return reached

    whole = {place: below(place) for place in range(count)}
    groups = {frozenset({p, *(q for q in whole[p] if p in whole[q])}) for p in range(count)}
    assert set(map(frozenset, found.recurrences)) == groups
    done = set[int]()
    for places in found.recurrences:
        done.update(places)
        assert all(whole[place] <= done for place in places)


def test_they_are_found_once_and_forgotten_with_the_body() -> None:
    body = example()
    body = replace(body, closed=body.closed.replace(jaxpr=body.jaxpr.replace()))  # which no cache of JAX has
    assert replace(body).dependences is body.dependences
    found = weakref.ref(body.dependences)
    del body
    gc.collect()
    assert found() is None


def test_a_number_needs_nothing() -> None:
    body = body_with(lambda c, a, x: ((jnp.float32(1.0),), None), 1)
    assert isinstance(body.afters[0], Literal) and body.dependences.needs[0] == frozenset()
