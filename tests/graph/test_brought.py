"""What takes a step long is computed at its own lanes, and brought to where it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

Step = Callable[[Any, Any], Any]


def dear(c: Any) -> Any:
    return jnp.log1p(jnp.exp(-c * c))


def stencil(c: Any, x: Any) -> Any:
    y = dear(c) * x
    return 0.5 * c + jnp.roll(y, 1) + jnp.pad(y[2:], (0, 2)) - y


def along_columns(c: Any, x: Any) -> Any:
    y = dear(c) + x
    return 0.3 * c + jnp.roll(y, (1, 2), (0, 1)) + jnp.flip(y, 1)


def beside_an_element(c: Any, x: Any) -> Any:
    y = dear(c) * x
    return c * 0.5 + jnp.roll(y, 1) + y[0]


def through_a_sum(c: Any, x: Any) -> Any:
    y = dear(c - c.sum() * 0.01)
    return 0.5 * y + jnp.roll(y, 1) * x


def made_before(c: Any, x: Any) -> Any:
    """What the steps read is made outside of them, as the weights of a gradient are."""
    y = x * c
    return 0.5 * c + jnp.roll(y, 1) + jnp.roll(y, -1)


def loop(step: Step, outside: Callable[[Any], Any] = lambda x: x) -> Callable[..., Any]:
    def many(c: Any, xs: Any) -> Any:
        return jax.vmap(lambda c, xs: lax.scan(lambda c, x: (step(c, x),) * 2, c, outside(xs)), (0, 1))(c, xs)

    return many


def arrays(shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[Any, Any]:
    rng = np.random.default_rng()
    return tuple(jnp.asarray(rng.normal(size=size), dtype) for size in (shape, (6, *shape)))


def source(function: Callable[..., Any], *args: Any) -> str:
    return str(j2t.transpile(function, *args).source)


@pytest.mark.parametrize("step", [stencil, beside_an_element, through_a_sum])
def test_it_is_computed_once(step: Step) -> None:
    text = source(loop(step), *arrays((3, 37)))
    assert text.count("libdevice.log1p") == 1, text
    assert "tl.gather(" in text


def test_what_is_made_outside_of_the_steps_is() -> None:
    text = source(loop(made_before, lambda xs: dear(jnp.sin(xs))), *arrays((3, 37)))
    assert text.count("libdevice.log1p") == 1, text


def test_what_is_soon_made_is_made_where_it_is_wanted() -> None:
    def step(c: Any, x: Any) -> Any:
        return 0.5 * c + jnp.pad((x * c)[1:], (0, 1))

    assert "+ col + 1, mask=" in source(loop(step), *arrays((3, 37)))  # x is read there


def test_a_loop_that_holds_nothing_holds_nothing_for_that() -> None:
    def step(c: Any, x: Any) -> Any:
        return jnp.tanh(c) + jnp.pad(dear(x)[1:], (0, 1))

    text = source(loop(step), *arrays((3, 37)))
    assert "tl.gather(" not in text and "lane" not in text, text


@pytest.mark.parametrize("step", [stencil, beside_an_element, through_a_sum, made_before])
@pytest.mark.parametrize(("length", "dtype"), [(37, np.float32), (2, np.float32), (1, np.float32), (9, jnp.bfloat16)])
def test_values(step: Step, length: int, dtype: Any) -> None:
    function = loop(step) if length > 2 or step is not stencil else loop(through_a_sum)
    args = arrays((3, length), dtype)
    compared(function, *args)
    compared(jax.grad(lambda *args: sum(leaf.astype(np.float32).sum() for leaf in function(*args)), (0, 1)), *args)


def test_values_in_64_bits() -> None:
    with jax.enable_x64(True):
        compared(loop(stencil), *arrays((3, 21), np.float64), rtol=1e-12)


def test_two_axes() -> None:
    compared(loop(along_columns), *arrays((2, 6, 9)))
    compared(loop(along_columns), *arrays((1, 20, 17)))
    assert source(loop(along_columns), *arrays((1, 20, 17))).count("libdevice.log1p") == 1


def test_what_is_not_finite_goes_where_it_goes() -> None:
    c, xs = arrays((3, 37))
    compared(loop(stencil), c.at[0, 5].set(np.nan).at[1, 36].set(np.inf).at[2, 0].set(-np.inf), xs)


def test_compiled() -> None:
    for step in (stencil, through_a_sum):
        compared(loop(step), *arrays((2, 37)), backend="machine")


def compared(function: Callable[..., Any], *args: Any, backend: str = "interpret", rtol: float | None = None) -> None:
    found = j2t.fuse(function, backend=backend, strict=True)(*args)
    expected = jax.jit(function)(*args)
    narrow = args[0].dtype == jnp.bfloat16
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = (np.asarray(each).astype(np.float64) for each in (one, other))
        limit = rtol or (5e-2 if narrow else 2e-5)
        largest = np.abs(other, where=np.isfinite(other), out=np.ones_like(other)).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=limit, atol=limit * largest)
