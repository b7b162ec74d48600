"""Which sums may go along with a reduction that they depend on, and in which way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.nodes import Reduce
from jaxpr2triton.graph.order import Order
from jaxpr2triton.graph.space import space_of
from jaxpr2triton.graph.streams import Moments, Shrinking, Stream
from jaxpr2triton.normalize.passes import normalize


def found(fn: Callable[..., Any], *, dtype: Any = np.float32, operands: int = 1) -> list[Stream]:
    """Of a kernel that walks the rows."""
    jaxpr = normalize(jax.make_jaxpr(fn)(*[jax.ShapeDtypeStruct((3, 50), dtype)] * operands)).jaxpr
    space = space_of(jaxpr, jaxpr.outvars, Classes(jaxpr.eqns), union=True)
    assert space is not None
    along = frozenset(axis for node in space.graph.of_kind(Reduce) for axis in node.over)
    return list(Order(space.graph, along).streams.values())


def kind(fn: Callable[..., Any], operands: int = 1) -> str:
    return " ".join(type(each).__name__ for each in found(fn, operands=operands)) or "none"


def peak(x: Any) -> Any:
    return x.max(1, keepdims=True)


def mean(x: Any) -> Any:
    return x.mean(1, keepdims=True)


CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "log of a sum": (lambda x: jax.nn.logsumexp(x, 1), "Shrinking"),
    "negated": (lambda x: jnp.exp(-(x - x.min(1, keepdims=True))).sum(1), "Shrinking"),
    "the other way round": (lambda x: jnp.exp(x.min(1, keepdims=True) - x).sum(1), "Shrinking"),
    "wrong extreme": (lambda x: jnp.exp(x - x.min(1, keepdims=True)).sum(1), "none"),
    "wrong sign": (lambda x: jnp.exp(peak(x) - x).sum(1), "none"),
    "other values": (lambda x: jnp.exp(jnp.sin(x) - peak(x)).sum(1), "none"),
    "two sums": (lambda x: (jnp.exp(x - peak(x)) * x).sum(1) / jnp.exp(x - peak(x)).sum(1), "Shrinking Shrinking"),
    "more added": (lambda x: (jnp.exp(x - peak(x)) + x).sum(1), "none"),
    "divided by it": (lambda x: (x / jnp.exp(x - peak(x))).sum(1), "none"),
    "product of two": (lambda x: (jnp.exp(x - peak(x)) * (x - peak(x))).sum(1), "none"),
    "largest of them": (lambda x: jnp.exp(x - peak(x)).max(1), "none"),
    "compared": (lambda x: (x == peak(x)).astype(x.dtype).sum(1), "none"),
    "another number for a large one": (lambda x: jnp.exp(x - jnp.where(peak(x) > 9, 9.0, peak(x))).sum(1), "none"),
    "another number for infinity": (
        lambda x: jnp.exp(x - jnp.where(peak(x) == -jnp.inf, 0.0, peak(x))).sum(1),
        "Shrinking",
    ),
    "variance": (lambda x: x.var(1), "Moments"),
    "cubes": (lambda x: ((x - mean(x)) ** 3).sum(1), "none"),
    "covariance": (lambda x: ((x - mean(x)) * (mean(jnp.sin(x)) - jnp.sin(x))).sum(1), "Moments"),
    "half of one": (lambda x: ((x - mean(x)) * jnp.cos(x)).sum(1), "none"),
    "mean of others": (lambda x: ((x - mean(jnp.sin(x))) ** 2).sum(1), "none"),
    "added": (lambda x: ((x + mean(x)) ** 2).sum(1), "none"),
    "away from the largest": (lambda x: ((x - peak(x)) ** 2).sum(1), "none"),
    "away from less than the mean": (lambda x: ((x - -0.5 * mean(x)) ** 2).sum(1), "none"),
    "away from the mean": (lambda x: jnp.abs(x - mean(x)).sum(1), "none"),
    "rounded": (lambda x: jnp.round(x / jnp.abs(x).max(1, keepdims=True)).sum(1), "none"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes_along(name: str) -> None:
    fn, expected = CASES[name]
    assert kind(fn) == expected


def test_what_is_strict_about_infinities() -> None:
    (plain,), (kept,) = found(lambda x: jnp.exp(x - peak(x)).sum(1)), found(CASES["log of a sum"][0])
    assert isinstance(plain, Shrinking) and isinstance(kept, Shrinking)
    assert (plain.strict, plain.finite, kept.strict, kept.finite) == (True, False, False, True)


def test_one_factor_is_subtracted() -> None:
    (covariance,), (variance,) = found(CASES["covariance"][0]), found(CASES["variance"][0])
    assert isinstance(covariance, Moments) and isinstance(variance, Moments)
    assert (covariance.negative, variance.negative) == (True, False)


def test_what_needs_two_loops_does_not_go_along() -> None:
    """The second maximum is of what the first one is needed for: its loop is later, and so is what needs it."""

    def twice(x: Any) -> Any:
        return jax.nn.logsumexp(jnp.abs(x - peak(x)), 1)

    assert kind(twice) == "Shrinking"


def test_whole_numbers_do_not() -> None:
    assert found(lambda x: ((x - x.sum(1, keepdims=True)) ** 2).sum(1), dtype=np.int32) == []
