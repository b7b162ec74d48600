"""Drawn sums that keep what they lose are what they are under `jit`, to the last bit."""

from __future__ import annotations

import hypothesis
import jax
import numpy as np
from hypothesis import given

from jaxpr2triton import fuse
from tests.drawn.compensated import Compensated, sums

EXAMPLES = hypothesis.settings().max_examples


def compared(program: Compensated, backend: str) -> None:
    hypothesis.note(str(program))
    xs = program.argument()
    wanted = jax.tree.leaves(jax.jit(program)(xs))
    found = jax.tree.leaves(fuse(program.__call__, backend=backend)(xs))  # type: ignore[call-overload]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64))


@hypothesis.settings(max_examples=max(EXAMPLES // 2, 8))
@given(sums())
def test_interpreted(program: Compensated) -> None:
    compared(program, "interpret")


@hypothesis.settings(max_examples=max(EXAMPLES // 6, 4))
@given(sums())
def test_compiled(program: Compensated) -> None:
    compared(program, "machine")
