"""Gathers and scatters that hypothesis draws: dimension numbers, windows, modes, dtypes; values, gradients, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import jaxpr2triton as j2t
from tests.drawn.choices import Hypothesis
from tests.drawn.places import APPLIED, FLOATS, SCATTERS, Case, arguments, drawn_case, programs


@st.composite
def cases(draw: Callable[..., Any], names: tuple[str, ...]) -> Case:
    return drawn_case(Hypothesis(draw), names)


@given(cases(("gather",)))
def test_gathers(case: Case) -> None:
    compare(case)


@given(cases(tuple(SCATTERS)))
def test_scatters(case: Case) -> None:
    compare(case)


@given(cases(tuple(APPLIED)))
def test_scatters_that_apply_a_function(case: Case) -> None:
    compare(case)


def compare(case: Case) -> None:
    tolerance = 2 * float(jnp.finfo(case.dtype).eps) if case.dtype in FLOATS else 0
    with jax.enable_x64("64" in case.dtype + case.index_dtype):
        args = arguments(case)
        for what, function in programs(case).items():
            try:
                expected = jax.jit(function)(*args)
            except NotImplementedError:  # JAX has no derivative of a product at places that may be alike
                continue
            found = jax.jit(j2t.fuse(function, backend="interpret"))(*args)
            for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
                one, other = (np.asarray(x, np.float64) for x in (ours, theirs))
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=8 * tolerance, err_msg=what)
