"""Gradients of associative scans: scans from the other end, in as few kernels, against those of JAX's recursion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.scanned_slopes import affine_scanned_p
from jaxpr2triton.normalize.arrays.associative import join_parts
from tests.normalize.arrays.test_associative import PLACES, SCANS, some

Fn = Callable[..., Any]
ORDER_MATTERS = ("max",)


def scan_of(name: str, axis: int, reverse: bool = False) -> Fn:
    """With all results read."""
    combine, parts = SCANS[name]

    def scanned(*args: Any) -> Any:
        found = lax.associative_scan(combine, args if parts > 1 else args[0], axis=axis, reverse=reverse)
        floats = [each for each in jax.tree.leaves(found) if each.dtype != bool]
        return sum(each * (2 + n) + jnp.log1p(each * each) for n, each in enumerate(floats))

    return scanned


def moving(args: list[Any]) -> tuple[int, ...]:
    return tuple(n for n, arg in enumerate(args) if arg.dtype != bool)


def close(mine: Any, theirs: Any) -> None:
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        most = np.abs(want).max(initial=1, where=np.isfinite(want))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * most)


def gradients(function: Fn, args: list[Any]) -> None:
    def loss(fn: Fn) -> Fn:
        return lambda *args: (fn(*args) * jnp.cos(jnp.arange(args[-1].size).reshape(args[-1].shape))).sum()

    fused = j2t.fuse(function, backend="interpret", strict=True)
    mine, theirs = (jax.jit(jax.value_and_grad(loss(fn), moving(args)))(*args) for fn in (fused, function))
    close(mine, theirs)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [name for name in SCANS if name not in ORDER_MATTERS])
def test_few_kernels(name: str, place: str) -> None:
    shape, axis = PLACES[place]
    function, args = scan_of(name, axis, place in ("columns", "long")), some(shape, SCANS[name][1], name)
    halves = j2t.transpile(function, *args, grad=moving(args))
    for half in (halves.forward, halves.backward):
        assert not half.leftovers and len(half.kernels) <= (3 if place == "long" else 1), half.explain()
    if place == "rows" or (place == "long" and name != "matrices"):  # XLA takes long to compile what those are
        gradients(function, args)


def test_a_slope_that_is_infinite_is_that_of_its_operand_alone() -> None:
    """As where steps follow each other: nothing is added to the others that is 0 times it."""
    x = np.float32([np.inf, 1e4, 0.3, -0.5, 0.2])

    def in_steps(x: Any) -> Any:
        return lax.scan(lambda y, x: (jnp.logaddexp(y, x),) * 2, x[0], x[1:])[1].sum()

    def at_once(x: Any) -> Any:
        return lax.associative_scan(jnp.logaddexp, x)[1:].sum()

    theirs = jax.jit(jax.grad(in_steps))(x)
    assert np.isposinf(theirs[1]) and np.isfinite(np.delete(theirs, 1)).all()
    close(jax.grad(j2t.fuse(at_once, backend="interpret", strict=True))(x), theirs)


def test_what_is_read_is_saved_as_it_is() -> None:
    """Not as it is one place further on."""
    args = some((300,), 2, "affine")
    halves = j2t.transpile(scan_of("affine", 0), *args, grad=0)
    assert "tl.gather" not in halves.forward.source


@pytest.mark.parametrize("name", ["mul", "affine", "logaddexp", "matrices"])
def test_of_a_batch(name: str) -> None:
    args = some((3, 4, 20), SCANS[name][1], name)
    for axis in (0, 1):
        gradients(jax.vmap(scan_of(name, axis), in_axes=1, out_axes=1), args)


def test_of_a_batch_of_some_operands() -> None:
    a, b = some((4, 30), 2, "affine")
    function = jax.vmap(scan_of("affine", 0), in_axes=(None, 0))
    gradients(function, [a[0], b])


def test_batches_of_gradients() -> None:
    args = some((4, 30), 2, "affine")
    fused = j2t.fuse(scan_of("affine", 0), backend="interpret", strict=True)

    def gradient(fn: Fn) -> Any:
        return jax.vmap(jax.grad(lambda *args: fn(*args).sum(), (0, 1)))(*args)

    close(gradient(fused), gradient(scan_of("affine", 0)))


@pytest.mark.parametrize("name", ["mul", "affine", "logaddexp", "segments", "matrices"])
def test_of_higher_order(name: str) -> None:
    args = some((12,), SCANS[name][1], name)
    function, which = scan_of(name, 0, reverse=True), moving(args)[-1]
    fused = j2t.fuse(function, backend="interpret", strict=True)

    def both_backwards(fn: Fn, which: int) -> Fn:
        return jax.jacrev(jax.jacrev(fn, which), which)

    for twice in (jax.hessian, both_backwards):
        mine, theirs = (twice(lambda *args, fn=fn: (fn(*args) ** 2).sum(), which)(*args) for fn in (fused, function))
        np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4)


def test_forwards() -> None:
    args = some((4, 30), 2, "affine")
    tangents = [jnp.cos(arg) for arg in args]
    function = scan_of("affine", 1)
    fused = j2t.fuse(function, backend="interpret", strict=True)
    close(jax.jvp(fused, args, tangents), jax.jvp(function, args, tangents))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_dtypes(dtype: Any) -> None:
    def gradient(fn: Fn, args: list[Any]) -> Any:
        return jax.grad(lambda *args: fn(*args).astype(jnp.float64).sum(), (0, 1))(*args)

    with jax.enable_x64(True):
        args = [arg.astype(dtype) for arg in some((40,), 2, "affine")]
        mine = gradient(j2t.fuse(scan_of("affine", 0), backend="interpret"), args)
        theirs = gradient(scan_of("affine", 0), [arg.astype(np.float64) for arg in args])
        for got, want in zip(mine, theirs):
            assert got.dtype == dtype
            np.testing.assert_allclose(np.float64(got), want, rtol=0, atol=1e-12 if dtype == np.float64 else 0.1)


@pytest.mark.parametrize("name", ["mul", "logaddexp", "affine"])
def test_infinities_stay_where_they_are(name: str) -> None:
    """The slopes at the first element are not read."""

    def function(*args: Any) -> Any:
        return lax.associative_scan(SCANS[name][0], args if len(args) > 1 else args[0])

    def gradient(fn: Fn, args: list[Any]) -> Any:
        loss = jax.grad(lambda *args: (jnp.tanh(jax.tree.leaves(fn(*args))[-1]) * jnp.arange(9.0)).sum(), moving(args))
        return loss(*args)

    for value in (np.inf, -np.inf, 0.0):
        args = some((9,), SCANS[name][1], name)
        args[-1][0] = value
        close(gradient(j2t.fuse(function, backend="interpret"), args), gradient(function, args))


@pytest.mark.parametrize("combine", [jnp.maximum, jnp.minimum])
def test_what_is_equal_has_the_slopes_of_the_recursion(combine: Fn) -> None:
    """Of a maximum the order in which elements are combined decides which share they have."""
    x = jnp.asarray(some((40,), 1, "max")[0]).at[3:20].set(0.5)
    gradients(lambda x: lax.associative_scan(combine, x), [x])


def test_what_is_only_added_is_a_running_sum() -> None:
    def pair(left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] * right[1]

    halves = j2t.transpile(lambda *args: lax.associative_scan(pair, args), *some((40,), 2, "affine"), grad=0)
    assert "_combine" not in halves.backward.source


def test_parts_that_follow_too_many_stay() -> None:
    def cubes(left: Any, right: Any) -> Any:
        a, b = (jnp.stack(side).reshape(3, 3, -1) for side in (left, right))
        return tuple((a[:, :, None] * b[None]).sum(1).reshape(9, -1))

    closed = jax.make_jaxpr(lambda *args: lax.associative_scan(cubes, args))(*some((16,), 9, "add"))
    assert join_parts(closed) is closed


def test_by_itself() -> None:
    """The equations run, and are differentiated, without kernels as well."""
    rng = np.random.default_rng(0)
    operands = [rng.uniform(-0.9, 0.9, (7, 2)) for _ in range(6)]

    def steps(*operands: Any, reverse: bool) -> Any:
        def step(y: Any, each: Any) -> Any:
            return ((each[0] @ y[..., None])[..., 0] + each[1],) * 2

        matrix, terms = jnp.stack(operands[:4], -1).reshape(7, 2, 2, 2), jnp.stack(operands[4:], -1)
        return lax.scan(step, jnp.zeros((2, 2)), (matrix, terms), reverse=reverse)[1]

    def scan(*operands: Any, reverse: bool) -> Any:
        return jnp.stack(affine_scanned_p.bind(*operands, axis=0, reverse=reverse, choosing=False), -1)

    def values(fn: Fn, reverse: bool) -> list[Any]:
        fn = partial(fn, reverse=reverse)
        changed = jax.jit(fn), jax.jacfwd(fn, 3), jax.jacrev(fn, (1, 5))
        return jax.tree.leaves([each(*map(jnp.asarray, operands)) for each in changed])

    with jax.enable_x64(True):
        for reverse in (False, True):
            for got, want in zip(values(scan, reverse), values(steps, reverse), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
