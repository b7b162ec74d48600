"""Powers of two that leave the sums whose terms have them, and those that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.normalize import normalize
from jaxpr2triton.normalize.arrays.doubled import double_sums
from tests.normalize.passing import traced

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(20, 48)).astype(np.float32) for _ in range(2))
DOUBLED: dict[str, Callable[..., Any]] = {
    "of terms": lambda x, y: (2.0 * x).sum(0),
    "within a product": lambda x, y: (y * (4.0 * (x - y))).sum(1),
    "of two sums": lambda x, y: ((terms := y * (2.0 * x)).sum(0), terms.sum(1)),
    "of all": lambda x, y: (x * (y * 2.0)).sum(),
}
LEFT: dict[str, Callable[..., Any]] = {
    "less than one": lambda x, y: (0.5 * x).sum(0),
    "no power": lambda x, y: (3.0 * x).sum(0),
    "read by others": lambda x, y: ((terms := 2.0 * x).sum(0), jnp.tanh(terms)),
    "read on the way": lambda x, y: (y * (twice := 2.0 * x)).sum(0) + jnp.max(twice),
    "a result": lambda x, y: ((terms := 2.0 * x).sum(0), terms),
    "16 bits": lambda x, y: (x.astype(jnp.float16) * 2).sum(0, dtype=jnp.float16),
    "a maximum": lambda x, y: (2.0 * x).max(0),
    "added": lambda x, y: (2.0 * x + y).sum(0),
}


def products(program: Any) -> int:
    """Elements that are multiplied."""
    return sum(eqn.outvars[0].aval.size for eqn in program.jaxpr.eqns if eqn.primitive.name == "mul")


@pytest.mark.parametrize("name", DOUBLED)
def test_terms_are_multiplied_once_less(name: str) -> None:
    program = normalize(traced(DOUBLED[name], X, Y))
    doubled = double_sums(program)
    assert products(doubled) < products(program)
    assert [var.aval for var in doubled.jaxpr.outvars] == [var.aval for var in program.jaxpr.outvars]
    found, wanted = (jax.core.eval_jaxpr(each.jaxpr, each.consts, X, Y) for each in (doubled, program))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)  # in the same order, and nothing is rounded


@pytest.mark.parametrize("name", LEFT)
def test_others_stay(name: str) -> None:
    program = normalize(traced(LEFT[name], X, Y))
    assert double_sums(program) is program
