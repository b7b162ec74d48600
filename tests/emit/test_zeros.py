"""Sums mask what lies beyond an axis, unless it is zero there anyway; and what else is written in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

ROW, BITS = jax.ShapeDtypeStruct((9, 20), np.float32), jax.ShapeDtypeStruct((9,), np.uint32)


@pytest.mark.parametrize(
    ("summand", "masked"),
    [
        (lambda x, y: x * y, False),
        (lambda x, y: x * x - y, False),
        (lambda x, y: x * 0.5, False),
        (lambda x, y: x / 3.0, False),
        (lambda x, y: x * (y > 0), False),
        (lambda x, y: jnp.where(y > 0, x, 0.0), False),
        (lambda x, y: x + 1.0, True),
        (lambda x, y: jnp.exp(x), True),
        (lambda x, y: x / y, True),
        (lambda x, y: x * jnp.exp(y), True),  # which may be infinite beyond the axis
    ],
)
def test_only_what_is_not_zero_is_masked(summand: Callable[[Any, Any], Any], masked: bool) -> None:
    source = j2t.transpile(lambda x, y: summand(x, y).sum(-1), ROW, ROW).source
    (line,) = re.findall(r"tl\.reduce\(.*", source)
    assert ("_ok" in line) == masked, source


def test_terms_of_one_sum_are_masked_at_once() -> None:
    """And what is infinite beyond an axis does no harm."""

    def both(x: Any, y: Any) -> Any:
        return jnp.exp(x).sum(-1) + jnp.cos(y).sum(-1)

    x, y = (np.random.default_rng(n).normal(size=ROW.shape).astype(np.float32) for n in (0, 1))
    (line,) = re.findall(r"tl\.reduce\(.*", j2t.transpile(both, ROW, ROW).source)
    assert line.count("tl.where") == 1
    np.testing.assert_allclose(j2t.fuse(both, backend="interpret")(x, y), jax.jit(both)(x, y), rtol=1e-5)


def test_bits_are_written_as_such() -> None:
    source = j2t.transpile(lambda x: lax.bitcast_convert_type(x | np.uint32(0x3F800000), np.float32), BITS).source
    assert "| 0x3F800000" in source and "1065353216" not in source


def test_lanes_are_brought_into_range_where_they_may_be_outside() -> None:
    def step(c: Any, _: Any) -> Any:
        return jnp.concatenate([c[:1], c[:-1]]) + jnp.concatenate([c[1:], c[-1:]]), None

    state = jax.ShapeDtypeStruct((32,), np.float32)
    source = j2t.transpile(lambda c: lax.scan(step, c, None, length=4)[0], state).source
    assert re.search(r"tl\.maximum\(\w+ - 1, 0\)\n", source) and re.search(r"tl\.minimum\(\w+ \+ 1, 31\)\n", source)


def test_an_element_at_a_computed_place_is_where_the_lane_is_that_place() -> None:
    def step(c: Any, n: Any) -> Any:
        return jnp.sin(c.at[n].add(1.0)), c[n]

    steps = jax.ShapeDtypeStruct((5,), np.int32)
    source = j2t.transpile(lambda c, n: lax.scan(step, c, n), jax.ShapeDtypeStruct((8,), np.float32), steps).source
    assert re.search(r"\w+ == \w+", source) and "== 0, " not in source
