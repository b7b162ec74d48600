"""What is left of a loop that was written out is named for the loop, but is none."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

import jaxpr2triton as j2t


def test_a_loop_that_hands_on_what_it_is_given() -> None:
    def fn(x: Any, y: Any) -> Any:
        return jax.nn.softplus(lax.fori_loop(0, 2, lambda _, carried: y, x))

    x, y = np.linspace(-1, 1, 16, dtype=np.float16).reshape(2, 8)
    np.testing.assert_allclose(j2t.transpile(fn, x, y)(x, y), jax.jit(fn)(x, y), rtol=2e-3)
