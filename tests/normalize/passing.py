"""What the tests of the passes share: run a pass, look at it, and compare before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

Pass = Callable[[jex.ClosedJaxpr], jex.ClosedJaxpr]


def traced(function: Callable[..., Any], *args: Any) -> jex.ClosedJaxpr:
    return jax.make_jaxpr(function)(*args)


def primitives_of(closed: jex.ClosedJaxpr) -> list[str]:
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def outputs(closed: jex.ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(out) for out in jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values, where NaN equals NaN and 0.0 does not equal -0.0."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[a == a], np.signbit(b)[b == b]))


def after(each: Pass, function: Callable[..., Any], *args: Any) -> jex.ClosedJaxpr:
    """The program of the function after a pass, which must change no bit of its results."""
    before = traced(function, *args)
    result = each(before)
    jex.check_jaxpr(result.jaxpr)
    assert result.out_avals == before.out_avals
    for expected, actual in zip(outputs(before, args), outputs(result, args), strict=True):
        assert same_bits(expected, actual), f"{each.__name__}: {expected} became {actual}"
    return result


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.1, np.inf, -np.inf, np.nan, 1e-30, 6e4, -2.5, 7.0], np.float32)
