"""What only the last step of a loop puts out that anybody reads is carried, and nothing is written in the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.normalize.loops.test_defer import arrays

H, XS = arrays((4,), (7, 4))


def step(h: Any, x: Any) -> Any:
    y = jnp.tanh(h + x)
    return y * x, (y, h)


def last(h: Any, xs: Any) -> Any:
    return lax.scan(step, h, xs)[1][0][-1]


def last_backwards(h: Any, xs: Any) -> Any:
    return lax.scan(step, h, xs, reverse=True)[1][0][0]


def a_part_of_it(h: Any, xs: Any) -> Any:
    return lax.scan(step, h, xs)[1][0][-1, 1:3]


def both(h: Any, xs: Any) -> Any:
    _, (ys, hs) = lax.scan(step, h, xs)
    return ys[-1] + hs[-1], ys


def many(h: Any, xs: Any) -> Any:
    return jax.vmap(last)(jnp.stack([h, h + 1]), jnp.stack([xs, xs - 1]))


def again(h: Any, xs: Any) -> Any:
    return lax.scan(step, last(h, xs), xs)[1][0][-1]


def one_step(h: Any, xs: Any) -> Any:
    return last(h, xs[:1])


def passed_on(h: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (h * x, x), h, xs)[1][-1]


PROGRAMS = [last, last_backwards, a_part_of_it, both, many, again, one_step, passed_on]


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda h, xs: sum((leaf**2).sum() for leaf in jax.tree.leaves(function(h, xs))), (0, 1))


def agrees(function: Callable[..., Any]) -> None:
    ours, theirs = j2t.fuse(function, backend="interpret")(H, XS), function(H, XS)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", PROGRAMS)
def test_one_kernel_that_writes_no_step_but_the_last(function: Callable[..., Any]) -> None:
    (kernel,) = j2t.transpile(function, H, XS).kernels
    results = jax.tree.leaves(jax.eval_shape(function, H, XS))
    assert kernel.bytes_written == sum(leaf.size * leaf.dtype.itemsize for leaf in results)
    agrees(function)


@pytest.mark.parametrize("function", PROGRAMS)
def test_gradients(function: Callable[..., Any]) -> None:
    agrees(gradient(function))


@pytest.mark.parametrize("place", [0, 3, -2])
def test_neither_the_first_step_nor_another_one(place: int) -> None:
    agrees(lambda h, xs: lax.scan(step, h, xs)[1][0][place])
