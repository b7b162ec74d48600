"""Which loops of a kernel have to end before which value, and what belongs to a loop that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.nodes import Recurrence, Reduce
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.normalize.passes import normalize


def order(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Order:
    avals = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    jaxpr = normalize(jax.make_jaxpr(fn)(*avals)).jaxpr
    space = space_of(jaxpr, jaxpr.outvars, Classes(jaxpr.eqns), union=True)
    assert space is not None
    return Order(space.graph, space.steps)


def halved(c: Any, x: Any) -> Any:
    return 0.5 * c + x, c * 2


def nested(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        d, states = lax.scan(halved, c, x)
        return jnp.tanh(d), states

    return lax.scan(step, c, xs)


def looked_through(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        d, states = lax.scan(halved, c, x)
        return jnp.tanh(d + states.argmax(0)), d

    return lax.scan(step, c, xs)[0]


def beside(a: Any, b: Any, xs: Any) -> Any:
    return lax.scan(halved, a, xs), lax.scan(halved, b, xs)


def chained(c: Any, xs: Any) -> Any:
    d, states = lax.scan(halved, c, xs)
    return lax.scan(lambda d, y: (0.5 * d - y, d * y), d, states)


def keys_of_loops(found: Order) -> list[tuple[int, int]]:
    """(how many loops are open around, the pass there) of each loop."""
    keys = [found.key(loop) for loop in found.graph.of_kind(Recurrence)]
    return [(len(key.around), key.number) for key in keys]


def test_a_loop_in_a_loop_is_counted_in_its_own_scope() -> None:
    found = order(nested, (3,), (4, 5, 3))
    assert sorted(keys_of_loops(found)) == [(0, 0), (1, 0)]
    axes = sorted(found.looped, key=lambda axis: axis.name)
    stores = [found.keys(store, axes) for store in found.graph.stores]
    assert sorted(map(len, stores)) == [0, 2], "the states are stored within both loops, the last one after them"
    (states,) = (keys for keys in stores if keys)
    assert [key.opened[0].size for key in states] == [4, 5]
    assert not list(found.conflicts())


def test_a_search_through_the_steps_joins_their_loop() -> None:
    found = order(looked_through, (3,), (4, 5, 3))
    (largest,) = found.graph.of_kind(Reduce)
    (key,) = found.keys(largest, sorted(found.looped, key=lambda axis: axis.name))
    inner = max(found.graph.of_kind(Recurrence), key=lambda loop: len(found.loops(loop)))
    assert key == found.key(inner)
    assert not list(found.conflicts())


def test_loops_beside_each_other_share_one() -> None:
    found = order(beside, (3,), (3,), (4, 3))
    first, second = found.graph.of_kind(Recurrence)
    assert found.key(first) == found.key(second)
    assert not list(found.conflicts())


def test_states_that_are_read_after_their_loop() -> None:
    found = order(chained, (3,), (4, 3))
    first, second = found.graph.of_kind(Recurrence)
    assert [found.key(loop).number for loop in (first, second)] == [0, 1]
    assert {loop for _, loop in found.conflicts()} == {first}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_direction_is_that_of_the_loop(reverse: bool) -> None:
    found = order(lambda c, xs: lax.scan(halved, c, xs, reverse=reverse), (3,), (4, 3))
    (loop,) = found.graph.of_kind(Recurrence)
    (states,) = (found.keys(s, [loop.step]) for s in found.graph.stores if loop.step in s.value.axes)
    assert states == (found.key(loop),) and states[0].backwards is reverse


def backwards(c: Any, xs: Any) -> Any:
    """What is made of each x beside, in the order of steps, reads nothing that is carried."""
    return lax.scan(halved, c, xs, reverse=True), jnp.sin(xs)


def test_steps_that_wait_for_nothing_go_along_with_those_that_do() -> None:
    found = order(backwards, (3,), (4, 3))
    keys = [found.keys(store, sorted(found.looped, key=str)) for store in found.graph.stores]
    assert len(set(filter(None, keys))) == 1 and keys[-1][0].backwards
