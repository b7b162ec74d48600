"""Which conditions a place needs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.graph.guards import inside, needed
from jaxpr2triton.ir.index import Axis, Condition, of_axis, shift

I, J, K = (of_axis(Axis(name, 8)) for name in "ijk")
BEFORE = (shift(I, -1), J)


def test_what_runs_along_other_axes_is_not_needed() -> None:
    first, other, mine = Condition(I, 1, 8), Condition(K, 3, 4), Condition(J, 0, 5)
    assert needed((first, other, mine), BEFORE, (8, 8)) == (first, mine)
    assert needed((first, other), (I, J), (8, 8)) == ()
    assert inside((I, J), (8, 8)) and not inside(BEFORE, (8, 8))


def test_what_stands_in_one_condition_with_it_is() -> None:
    together = Condition(shift(type(I)(0, (*I.terms, *K.terms)), -2), 0, 8)
    conditions = (together, Condition(K, 1, 8), Condition(of_axis(Axis("l", 4)), 1, 2))
    assert needed(conditions, BEFORE, (8, 8)) == conditions[:2]


def test_a_row_is_read_once_for_all_that_choose_of_it() -> None:
    def function(x: Any, places: Any) -> Any:
        """Of each step but the first the sum of what goes to each place, as a gradient of `x[places]` has it."""
        spread = jax.vmap(lambda row: jnp.zeros(20).at[places].add(row))(x)
        return jnp.tanh(jnp.pad(spread, ((1, 0), (0, 0)))).sum(1)

    rng = np.random.default_rng()
    x, places = rng.normal(size=(6, 33)).astype(np.float32), rng.integers(0, 20, 33, dtype=np.int32)
    made = j2t.transpile(function, x, places)
    loads = [line for line in made.source.splitlines() if "tl.load(x_ptr" in line]
    assert loads and not any("places" in line or "chosen" in line for line in loads), made.source
    found = j2t.fuse(function, backend="interpret", strict=True)(x, places)
    np.testing.assert_allclose(found, jax.jit(function)(x, places), rtol=1e-5, atol=1e-5)
    assert lax.eq(found[0], 0.0)
