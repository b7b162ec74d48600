"""Associative scans as users write them: found in what JAX traces, and at most three kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize.arrays.associative import join_scans

Fn = Callable[..., Any]


def affine(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


def matrices(left: Any, right: Any) -> Any:
    (a, b, c, d), (e, f, g, h) = left, right
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def segments(left: Any, right: Any) -> Any:
    return left[0] | right[0], jnp.where(right[0], right[1], left[1] + right[1])


SCANS: dict[str, tuple[Fn, int]] = {  # what combines two elements, and of how many parts they are
    "add": (jnp.add, 1),
    "mul": (jnp.multiply, 1),
    "max": (jnp.maximum, 1),
    "logaddexp": (jnp.logaddexp, 1),
    "last positive": (lambda left, right: jnp.where(right > 0.5, right, left), 1),
    "affine": (affine, 2),
    "segments": (segments, 2),
    "matrices": (matrices, 4),
}
PLACES = {"row": ((700,), 0), "rows": ((3, 90), 1), "columns": ((90, 6), 0), "long": ((5001,), 0)}


def some(shape: tuple[int, ...], parts: int, name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(shape))
    found = [rng.uniform(0.2, 0.6, shape).astype(np.float32) for _ in range(parts)]
    return [found[0] > 0.5, *found[1:]] if name == "segments" else found


def scan_of(name: str, axis: int, reverse: bool = False) -> Fn:
    combine, parts = SCANS[name]

    def scanned(*args: Any) -> Any:
        found = lax.associative_scan(combine, args if parts > 1 else args[0], axis=axis, reverse=reverse)
        return found[-1] * 2 if parts > 1 else found * 2

    return scanned


def close(mine: Any, theirs: Any) -> None:
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SCANS)
def test_few_kernels(name: str, place: str, reverse: bool) -> None:
    shape, axis = PLACES[place]
    function, args = scan_of(name, axis, reverse), some(shape, SCANS[name][1], name)
    program = j2t.transpile(function, *args)
    assert not program.leftovers and len(program.kernels) <= (3 if place == "long" else 1), program.explain()
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in program.kernels)
    assert moved <= 2 * (sum(arg.nbytes for arg in args) + args[-1].nbytes)
    close(program(*args), jax.jit(function)(*args))


def test_all_parts_are_of_one_scan() -> None:
    args = some((300,), 4, "matrices")
    (kernel,) = j2t.transpile(lambda *args: lax.associative_scan(matrices, args), *args).kernels
    assert kernel.source.count("tl.associative_scan(") == 1


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64, np.int8, np.int32, np.uint32])
def test_dtypes(dtype: Any) -> None:
    with jax.enable_x64(True):
        args = [(np.arange(40) % 3 * scale).astype(dtype) for scale in (1, 2)]
        for reverse in (False, True):
            program = j2t.transpile(lambda *args, r=reverse: lax.associative_scan(affine, args, reverse=r)[1], *args)
            assert len(program.kernels) == 1
            got, want = program(*args), lax.associative_scan(affine, args, reverse=reverse)[1]
            assert got.dtype == want.dtype
            low = np.dtype(dtype).itemsize == 2
            np.testing.assert_allclose(np.float64(got), np.float64(want), rtol=0.1 if low else 1e-6)


def test_of_a_batch_in_a_loop_and_in_a_gradient() -> None:
    a, b = some((4, 60), 2, "affine")
    batch = jax.vmap(scan_of("affine", 0))
    close(j2t.transpile(batch, a, b)(a, b), jax.jit(batch)(a, b))
    assert len(j2t.transpile(batch, a, b).kernels) == 1

    def loop(a: Any, b: Any) -> Any:
        return lax.scan(lambda c, row: (lax.associative_scan(affine, (row, c))[1] * 0.5, c.sum()), b[0], a)

    program = j2t.transpile(loop, a, b)
    assert len(program.kernels) == 1 and not program.leftovers
    close(program(a, b), jax.jit(loop)(a, b))

    loss = lambda a, b: jnp.sin(scan_of("affine", 1)(a, b)).sum()  # noqa: E731
    fused = j2t.fuse(loss, backend="interpret")
    close(*(jax.jit(jax.value_and_grad(fn, (0, 1)))(a, b) for fn in (fused, loss)))


def test_the_derivative_of_a_maximum_is_not_associative_where_numbers_are_equal() -> None:
    x = jnp.asarray(some((40,), 1, "max")[0]).at[3:].set(0.5)
    running = lambda x: lax.associative_scan(jnp.maximum, x)  # noqa: E731
    function = lambda x: jax.jvp(running, (x,), (jnp.cos(x) + jnp.arange(40),))  # noqa: E731
    close(j2t.transpile(function, x)(x), jax.jit(function)(x))


def test_elements_that_are_read_elsewhere() -> None:
    """The steps of the recursion itself, as a derivative reads them, are computed beside the scan."""
    x = some((64,), 1, "mul")[0]
    function = lambda x: jax.jvp(lambda x: lax.associative_scan(jnp.multiply, x), (x,), (jnp.cos(x),))  # noqa: E731
    close(j2t.transpile(function, x)(x), jax.jit(function)(x))


def test_a_part_of_a_scan_is_no_part_of_one_whose_elements_are_made_later() -> None:
    def function(x: Any) -> Any:
        first = lax.associative_scan(jnp.maximum, x)
        return first, lax.associative_scan(lambda a, b: (a[0] + b[0] * 0, jnp.maximum(a[1], b[1])), (first * 2, x))

    (x,) = some((20,), 1, "max")
    close(j2t.transpile(function, x)(x), jax.jit(function)(x))


def changed(fn: Fn, *args: Any) -> bool:
    closed = jax.make_jaxpr(fn)(*args)
    return join_scans(closed) is not closed


def test_what_is_not_the_scan_of_one_function_stays() -> None:
    (x,) = some((16,), 1, "add")

    def recursion(x: Any, combines: list[Fn], shift: int = 0) -> Any:
        """As JAX writes it, with a function for each level."""
        if len(x) < 2:
            return x
        first, *rest = combines
        odd = recursion(first(lax.slice_in_dim(x, 0, -1, 2), lax.slice_in_dim(x, 1, None, 2)), rest, shift)
        even = first(lax.slice_in_dim(odd, 0, -1), lax.slice_in_dim(x, 2, None, 2))
        even = lax.concatenate([lax.slice_in_dim(x, shift, shift + 1), even], 0)
        return lax.pad(even, 0.0, [(0, 1, 1)]) + lax.pad(odd, 0.0, [(1, 0, 1)])

    assert not changed(lambda x: lax.associative_scan(lambda a, b: a + b * 0.5, x), x)  # not associative
    halved = lambda a, b: a * b * 0.5  # noqa: E731
    assert changed(lambda x: lax.associative_scan(jnp.add, x), x)
    assert changed(lambda x: lax.associative_scan(halved, x), x)
    assert changed(lambda x: recursion(x, [lax.add] * 4), x)
    assert not changed(lambda x: recursion(x, [lax.add, lax.add, lax.mul, lax.add]), x)
    assert not changed(lambda x: recursion(x, [lax.add, lax.add, lax.add, lax.sub]), x)
    assert not changed(lambda x: recursion(x, [lax.add] * 4, shift=1), x)
    assert not changed(lambda x, y: lax.associative_scan(lambda a, b: a + b * y, x), x, x[0])  # it reads something else
    assert not changed(lambda x: lax.associative_scan(lambda a, b: a + b.sum(), x), x.reshape(8, 2))


@pytest.mark.parametrize(
    "combine", [lambda a, b: (b[0] * 1.5, jnp.maximum(a[1], b[1])), lambda a, b: (a[0] + b[0], b[1])]
)
def test_a_part_that_is_made_of_one_side(combine: Any) -> None:
    args = some((40,), 2, "affine")

    def scanned(*args: Any) -> Any:
        return lax.associative_scan(combine, args)

    close(j2t.fuse(scanned, backend="interpret", strict=True)(*args), jax.jit(scanned)(*args))
