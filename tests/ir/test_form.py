"""Forms are equal where programs compute the same, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.ir.form import form_of

X = jax.ShapeDtypeStruct((4,), np.float32)


def form(function: Callable[..., Any], *args: Any) -> Any:
    return form_of(jax.make_jaxpr(function)(*(args or (X, X))))


def swapped(a: Any, b: Any) -> Any:
    other = b * a
    return jnp.sin(other)


SAME: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, w: jnp.sin(x * w), lambda h, u: jnp.sin(h * u)),
    (lambda x, w: lax.fori_loop(0, 3, lambda _, c: c * w, x), lambda h, u: lax.fori_loop(0, 3, lambda _, c: c * u, h)),
    (lambda x, w: x * np.float32(np.nan), lambda x, w: x * np.float32(np.nan)),
]
DIFFERENT: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, w: jnp.sin(x * w), swapped),
    (lambda x, w: x * 0.0, lambda x, w: x * -0.0),
    (lambda x, w: (x, w), lambda x, w: (w, x)),
    (lambda x, w: x * w, lambda x, w: (x * w, x)),
    (lambda x, w: x.reshape(2, 2), lambda x, w: x.reshape(4, 1)),
    (lambda x, w: x.astype("bfloat16"), lambda x, w: x.astype("float16")),
    (lambda x, w: lax.fori_loop(0, 3, lambda _, c: c * w, x), lambda x, w: lax.fori_loop(0, 3, lambda _, c: c + w, x)),
    (lambda x, w: jnp.cumsum(x), lambda x, w: jnp.cumsum(x, axis=0)[::-1]),
]


@pytest.mark.parametrize("pair", SAME)
def test_names_and_lines_do_not_matter(pair: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    first, second = map(form, pair)
    assert first == second and hash(first) == hash(second)


@pytest.mark.parametrize("pair", DIFFERENT)
def test_all_else_does(pair: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    first, second = map(form, pair)
    assert first != second


def test_types_of_inputs_do() -> None:
    assert form(jnp.sin, X) != form(jnp.sin, jax.ShapeDtypeStruct((4,), np.float16))


def test_constants_are_the_same_arrays_or_others() -> None:
    first, second = np.arange(4.0, dtype=np.float32), np.arange(4.0, dtype=np.float32)
    made = [jax.make_jaxpr(lambda x, c=c: x * c)(X) for c in map(jnp.asarray, (first, second))]
    assert form_of(made[0]) == form_of(made[0]) != form_of(made[1])
