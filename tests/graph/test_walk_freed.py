"""A walk is freed as soon as it is over: it is large, and collections of cycles take their time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxpr2triton.graph.classes import classes_of
from jaxpr2triton.graph.demands import Demands, TooManyPlaces
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.normalize import normalize


def walks() -> int:
    return sum(isinstance(each, Demands) for each in gc.get_objects())


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_a_walk_that_has_met_computed_numbers_is_freed() -> None:
    closed = normalize(jax.make_jaxpr(lambda x, i: x[i] + 1)(np.ones((9, 4), np.float32), np.arange(3)))
    before = walks()
    space = space_of(closed.jaxpr, closed.jaxpr.outvars, classes_of(closed.jaxpr))
    assert space is not None and space.graph.computed
    assert walks() == before


@pytest.mark.usefixtures("uncollected")
def test_a_walk_that_wants_a_value_at_too_many_places_is_freed() -> None:
    def fn(x: Any, w: Any) -> Any:
        product = x @ w
        return product[:, 1:] + product[:, :-1]

    closed = normalize(jax.make_jaxpr(fn)(np.ones((8, 256), np.float32), np.ones((256, 9), np.float32)))
    before = walks()
    with contextlib.suppress(TooManyPlaces):
        space_of(closed.jaxpr, closed.jaxpr.outvars, classes_of(closed.jaxpr), may_repeat=False)
        pytest.fail("the product is wanted at two places")
    assert walks() == before
