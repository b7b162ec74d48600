"""Whether something holds anywhere is a flag that programs set, where that saves a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

LONG = 70_007


def some(x: Any) -> Any:
    return jnp.any(x > 4.5)


def not_all(x: Any) -> Any:
    return ~jnp.all(x < 4.5)


def beside(x: Any) -> Any:
    y = jnp.sin(x)
    return y, jnp.any(y > 0.999999).astype(jnp.int32)


def as_float(x: Any) -> Any:
    return x * 2, jnp.any(x > 4.5).astype(jnp.float32).reshape(1, 1)


def of_rows(x: Any) -> Any:
    rows = jax.nn.softmax(x.reshape(-1, 7))
    return rows, jnp.any(rows > 0.9)


def two(x: Any) -> Any:
    above = x > 4.5
    return above, jnp.any(above), jnp.any(x < -4.5, keepdims=True)


def after_a_loop(x: Any) -> Any:
    def step(state: Any) -> Any:
        x, steps = state
        return x * 0.5, steps + 1

    x, steps = jax.vmap(lambda x: lax.while_loop(lambda s: (s[0] > 1) & (s[1] < 20), step, (x, 0)))(x)
    return x, jnp.any(steps > 2)


ONE_KERNEL = [some, not_all, beside, as_float, of_rows, two, after_a_loop]


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * scale)


def flags_of(function: Callable[..., Any], *args: Any) -> list[list[str]]:
    """The flags of each kernel."""
    return [[b.name for b in kernel.outputs if b.is_flag] for kernel in j2t.transpile(function, *args).kernels]


def agree(function: Callable[..., Any], *args: Any, backend: Any = "interpret") -> None:
    found = jax.jit(j2t.fuse(function, backend=backend, strict=True))(*args)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", ONE_KERNEL)
def test_one_kernel_sets_it(function: Callable[..., Any]) -> None:
    assert j2t.transpile(function, numbers(LONG)).source.count(" (zero before, and only set)") >= 1
    found = flags_of(function, numbers(LONG))
    assert len(found) == 1
    assert found[0]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("function", ONE_KERNEL)
def test_values(function: Callable[..., Any], backend: str) -> None:
    for scale in (1.0, 0.0, 100.0):  # for few, for none, for many
        agree(function, numbers(LONG, scale=scale), backend=backend)


@pytest.mark.parametrize("place", [0, 12_345, LONG - 1])
def test_one_element_sets_it(place: int) -> None:
    agree(some, jnp.zeros(LONG).at[place].set(5.0))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_little(size: int) -> None:
    assert all(not flags for flags in flags_of(some, numbers(size)))
    agree(some, numbers(size))


def test_what_is_given_back_beside_does_not_change_it() -> None:
    """Lanes beyond the end have anything."""
    agree(lambda x: jnp.any(jnp.exp(x) == 1.0), numbers(LONG))
    agree(not_all, jnp.zeros(LONG))


def test_where_it_saves_no_kernel_it_is_reduced() -> None:
    def rescaled(x: Any) -> Any:
        return jnp.where(jnp.any(x > 3), x * 0.5, x)

    def with_a_sum(x: Any) -> Any:
        return jnp.any(x > 3), x.sum()

    for function in (rescaled, with_a_sum):
        assert not any(flags_of(function, numbers(LONG)))
        agree(function, numbers(LONG))


def test_several_results_are_reduced() -> None:
    def columns(x: Any) -> Any:
        return jnp.any(x > 3, 0)

    assert not any(flags_of(columns, numbers(30_000, 5)))
    agree(columns, numbers(30_000, 5))


def test_mapped_differentiated_and_over_steps() -> None:
    agree(jax.vmap(some), numbers(3, LONG))
    agree(lambda x: jax.grad(lambda x: jnp.where(beside(x)[1], beside(x)[0], 0.0).sum())(x), numbers(LONG))
    agree(lambda x: lax.scan(lambda s, x: (s + 1, jnp.any(x > s)), 0.0, x.reshape(73, -1)), numbers(LONG))


def test_a_check_has_no_kernel_of_its_own() -> None:
    """As libraries write it: a branch that raises an error tells the largest code, which it looks for itself."""

    def told(largest: Any, y: Any) -> Any:
        like = jax.ShapeDtypeStruct((), np.float32)
        return y + jax.pure_callback(lambda code: np.float32(code), like, largest)

    def checked(x: Any) -> Any:
        y, _ = after_a_loop(x)
        codes = jnp.where(y > 2, 2, jnp.where(y > 1, 1, 0))
        return lax.cond(jnp.any(codes != 0), told, lambda largest, y: y, codes.max(), y)

    assert flags_of(checked, numbers(1024)) == [["flag"]]
    for scale in (1.0, 1e6, 1.5e6):
        x = numbers(1024, scale=scale)
        found = jax.jit(j2t.fuse(checked, backend="interpret"))(x)
        np.testing.assert_allclose(found, jax.jit(checked)(x), rtol=1e-6)


def test_it_is_told() -> None:
    compiled = j2t.transpile(some, numbers(LONG))
    assert "some only sets out: bytes that are zero before each launch" in str(compiled.explain())
    (kernel,) = compiled.explain_json()["kernels"]
    assert kernel["flags"] == ["out"]
