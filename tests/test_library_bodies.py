"""Loops as libraries write them: what is empty, what is called inside, what is closed over, loops in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

X = jnp.asarray(np.linspace(0.1, 0.9, 4, dtype=np.float32))
TABLE = jnp.arange(4, dtype=jnp.float32) / 4
MANY = jnp.asarray(np.arange(2**20, dtype=np.float32) / 2**20)


def is_in_kernels(function: Callable[..., Any], *args: Any) -> None:
    """Nothing stays with XLA, and the values are those of `jax.jit`."""
    got = j2t.fuse(function, backend="interpret", strict=True)(*args)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    def summed(*args: Any) -> Any:
        leaves = jax.tree.leaves(function(*args))
        return sum(jnp.sum(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    return summed


# -------------------------------------------------------------------------------- no elements
def reduced(x: Any) -> Any:
    def step(carried: Any, _: Any) -> Any:
        mean, empty = carried
        empty = empty * 2 + empty
        shift = empty.sum(1) + empty @ jnp.zeros(0) + empty.max(1, initial=0.0)
        return (jnp.sin(mean + shift), empty), mean

    return lax.scan(step, (x, jnp.zeros((4, 0))), None, 5)


def multiplied(x: Any) -> Any:
    def step(mean: Any, _: Any) -> Any:
        return jnp.sin(mean) + jnp.zeros((4, 0)) @ jnp.zeros(0), jnp.zeros((0, 4)) @ mean

    return lax.scan(step, x, None, 4)


def written(x: Any) -> Any:
    def step(mean: Any, _: Any) -> Any:
        mean = lax.dynamic_update_slice(mean, jnp.zeros(0), (1,)).at[jnp.zeros(0, int)].add(jnp.zeros(0))
        return mean * 2, jnp.concatenate([mean, jnp.zeros(0)])

    return lax.scan(step, x, None, 4)


def scanned_over(x: Any) -> Any:
    return lax.scan(lambda mean, inputs: (mean * 2 + (inputs @ jnp.zeros(0)), inputs * 3), x, jnp.zeros((5, 4, 0)))


@pytest.mark.parametrize("function", [reduced, multiplied, written, scanned_over])
def test_values_without_elements(function: Callable[..., Any]) -> None:
    is_in_kernels(function, X)
    is_in_kernels(jax.grad(total(function)), X)


def test_values_without_elements_in_a_while() -> None:
    def step(carried: Any) -> Any:
        return carried[0] * 2 + carried[1] @ jnp.zeros(0), carried[1] * 2

    is_in_kernels(lambda x: lax.while_loop(lambda c: c[0].sum() < 50, step, (x, jnp.zeros((4, 0)))), X)


# -------------------------------------------------------------------------------- calls
@jax.custom_vjp
def with_vjp(x: Any) -> Any:
    return jnp.sin(x) * TABLE


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, ct: (ct * jnp.cos(x) * 3,))


@jax.custom_jvp
def with_jvp(x: Any) -> Any:
    return jnp.cos(x) + TABLE


with_jvp.defjvps(lambda tangent, out, x: tangent * 5 * jnp.sin(x))
called = jax.jit(lambda x: jnp.sin(x) * TABLE + MANY[:4])


def calls(x: Any) -> Any:
    def step(carried: Any, y: Any) -> Any:
        carried = with_vjp(carried) + with_jvp(carried)
        carried = jax.checkpoint(lambda c: called(c) + with_vjp(c))(carried)
        carried = jax.jit(lambda c: lax.cond(c[0] > 0, with_jvp, with_vjp, c))(carried)
        return carried * 0.1, jax.named_call(lambda c: c + y, name="shifted")(carried)

    return lax.scan(step, x, TABLE)


def test_calls_that_hold_arrays() -> None:
    is_in_kernels(calls, X)
    is_in_kernels(jax.grad(total(calls)), X)


def test_calls_that_hold_arrays_in_a_while() -> None:
    def go_on(x: Any) -> Any:
        return jax.jit(lambda c: c.sum() < 50)(x) & jax.jit(lambda c: (c * TABLE).sum() < 100)(x)

    def step(x: Any) -> Any:
        return called(with_vjp(x)) + jax.jit(jax.checkpoint(lambda c: c * TABLE + c))(x) + 1

    def function(x: Any) -> Any:
        return lax.while_loop(go_on, step, x)

    is_in_kernels(function, X)
    is_in_kernels(jax.vmap(function), jnp.stack([X, X + 1, X + 30]))


# -------------------------------------------------------------------------------- what is closed over
def test_a_million_constants() -> None:
    is_in_kernels(lambda i: lax.scan(lambda c, _: ((c * 7 + 3) % 2**20, MANY[c]), i, None, 8), 5)
    is_in_kernels(
        lambda i: lax.while_loop(
            lambda c: c[0] < 20, lambda c: (c[0] + 1, (c[1] * 7 + 3) % 2**20, c[2] + MANY[c[1]]), (0, i, 0.0)
        )[2],
        5,
    )


def test_a_hundred_carries() -> None:
    def step(carried: Any, _: Any) -> Any:
        return [jnp.sin(a) + b for a, b in zip(carried, carried[1:] + carried[:1])], None

    is_in_kernels(lambda x: lax.scan(step, [x * k for k in range(100)], None, 3)[0], X / 100)


def test_ten_branches() -> None:
    branches = [lambda c, k=k: jnp.sin(c * k) + k for k in range(10)]

    def function(x: Any) -> Any:
        return lax.scan(lambda c, i: (lax.switch(i, branches, c), c), x, jnp.arange(12))

    is_in_kernels(function, X)
    is_in_kernels(jax.grad(total(function)), X)


def test_keys_in_structures() -> None:
    def function(x: Any, key: Any) -> Any:
        def step(carried: Any, i: Any) -> Any:
            keys, raw, x = carried
            first, second = jax.random.split(keys["a"])
            raw, third = jax.random.split(raw)
            x = x + jax.random.normal(second, (4,)) + jax.random.uniform(jax.random.fold_in(keys["b"][0][1], i))
            return ({"a": first, "b": [keys["b"][0][::-1]]}, raw, x + jax.random.bernoulli(third)), x

        keys = {"a": key, "b": [jax.random.split(key, 2)]}
        return lax.scan(step, (keys, jax.random.PRNGKey(1), x), jnp.arange(3))[1]

    is_in_kernels(function, X, jax.random.key(3))


# -------------------------------------------------------------------------------- loops in loops
def results_of_a_loop(x: Any) -> Any:
    """Read backwards, shifted, one at a time, summed."""

    def step(carried: Any, _: Any) -> Any:
        a, b = lax.fori_loop(0, 3, lambda _, ab: (jnp.sin(ab[0]) + ab[1], ab[1] * 0.9), (carried, carried * 2))
        return jnp.sin(a[::-1] + b * a.sum() + a[0] * b[1]), (a.max(), jnp.roll(a, 1) + b)

    return lax.scan(step, x, None, 4)


def outputs_of_a_scan(x: Any) -> Any:
    def step(carried: Any, _: Any) -> Any:
        final, ys = lax.scan(lambda s, y: (s + y * 0.1, s * y), carried.sum(), carried)
        return 0.3 * jnp.sin(final + ys[::-1] * ys + ys[0]), ys.sum() + final

    return lax.scan(step, x, None, 2)


def results_of_a_while(x: Any) -> Any:
    def step(carried: Any, _: Any) -> Any:
        count, after = lax.while_loop(lambda s: s[1].sum() < 3, lambda s: (s[0] + 1, s[1] * 1.7), (0, carried))
        return jnp.sin(after[::-1] + after * count + after[0]) * 0.1 + 0.2, (after.max() + count, after)

    return lax.scan(step, x, None, 4)


@pytest.mark.parametrize("function", [results_of_a_loop, outputs_of_a_scan, results_of_a_while])
def test_results_of_inner_loops_are_read_at_several_places(function: Callable[..., Any]) -> None:
    is_in_kernels(function, X)
    if function is not results_of_a_while:  # which JAX cannot differentiate
        is_in_kernels(jax.grad(total(function)), X)


def while_in_scan_in_while(x: Any) -> Any:
    def inner(v: Any, _: Any) -> Any:
        v = lax.while_loop(lambda v: v.sum() < 3, lambda v: v * 1.5 + 0.1, v)
        return jnp.sin(v) * 0.1 + 0.2, v.sum()

    def outer(carried: Any) -> Any:
        v, ys = lax.scan(inner, carried[1], None, 3)
        return carried[0] + 1, v + ys.sum() * 1e-3

    return lax.while_loop(lambda c: c[0] < 4, outer, (0, x))


def test_a_while_in_a_scan_in_a_while() -> None:
    is_in_kernels(while_in_scan_in_while, X)
    is_in_kernels(jax.vmap(while_in_scan_in_while), jnp.stack([X, X + 0.1, X + 1]))


# -------------------------------------------------------------------------------- loops with a derivative of their own
def bounded(x: Any) -> Any:
    """A loop with an end, as scans in scans of steps that are taken or not: what can be differentiated backwards."""

    def step(carried: Any, _: Any) -> Any:
        return lax.cond(
            carried[0] < 3.0, lambda c: (c[0] + jnp.sin(c[1]) + 0.2, c[1] * 0.9), lambda c: c, carried
        ), None

    def steps(carried: Any, _: Any) -> Any:
        taken = jax.checkpoint(lambda c: lax.scan(step, c, None, 4)[0])
        return lax.cond(carried[0] < 3.0, taken, lambda c: c, carried), None

    return lax.scan(steps, (x, x), None, 4)[0]


@jax.custom_vjp
def checkpointed(x: Any) -> Any:
    """A loop that keeps every third state, and in its derivative computes the others again."""
    return _checkpointed(x)[0]


def _one(state: Any) -> Any:
    return jnp.sin(state) + 0.3 * state


def _checkpointed(x: Any) -> Any:
    def step(carried: Any) -> Any:
        count, state, saved = carried
        saved = lax.cond(count % 3 == 0, lambda: saved.at[count // 3].set(state), lambda: saved)
        return count + 1, _one(state), saved

    count, state, saved = lax.while_loop(
        lambda c: (c[0] < 9) & (jnp.abs(c[1]) > 0.01), step, (0, x, jnp.zeros((3, *x.shape)))
    )
    return state, (count, saved)


def _checkpointed_bwd(kept: Any, ct: Any) -> Any:
    count, saved = kept

    def step(carried: Any) -> Any:
        k, ct = carried
        state = lax.fori_loop(0, (k - 1) % 3, lambda _, s: _one(s), saved[(k - 1) // 3])
        return k - 1, jax.vjp(_one, state)[1](ct)[0]

    return (lax.while_loop(lambda c: c[0] > 0, step, (count, ct))[1],)


checkpointed.defvjp(_checkpointed, _checkpointed_bwd)


@pytest.mark.parametrize("function", [bounded, checkpointed])
def test_loops_that_libraries_build_and_their_gradients(function: Callable[..., Any]) -> None:
    xs = jnp.linspace(0.3, 1.0, 5)
    is_in_kernels(function, xs[0])
    is_in_kernels(jax.vmap(function), xs)
    is_in_kernels(jax.grad(total(function)), xs[0])
    is_in_kernels(jax.grad(total(jax.vmap(function))), xs)
