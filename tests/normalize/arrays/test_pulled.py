"""Scatters at many computed places: every place looks through all updates, in one kernel and always in one order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(0)
WRITES = ("set", "add", "subtract", "multiply", "min", "max")
MODES = ("drop", "clip", "promise_in_bounds")


def some(*shape: int) -> np.ndarray:
    return RNG.choice([-2, -1, 0.5, 1, 2], shape).astype(np.float32)  # sums and products of these are exact


def places(most: int, *shape: int, inside: bool = False) -> np.ndarray:
    low, high = (0, most) if inside else (-most - 2, most + 2)
    return RNG.integers(low, high, shape).astype(np.int32)


def scatter(write: str, mode: str) -> Callable[..., Any]:
    return lambda x, i, v: getattr(x.at[i], write)(v, mode=mode)


def compare(function: Callable[..., Any], *args: Any, kernels: int = 1, tolerance: float = 1e-5) -> None:
    program = j2t.transpile(function, *args)
    assert program.leftovers == (), program.explain()
    assert len(program.kernels) <= kernels
    for got, want in zip(*map(jax.tree.leaves, (program(*args), jax.jit(function)(*args))), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        one, other = (np.asarray(each, np.float64) for each in (got, want))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("write", WRITES)
def test_repeated_places(write: str, mode: str) -> None:
    """Half of them are twice there."""
    index = places(400, 300, inside=mode == "promise_in_bounds")
    compare(scatter(write, mode), some(400), index, some(300))


@pytest.mark.parametrize("write", ["set", "add", "max"])
def test_rows(write: str) -> None:
    compare(scatter(write, "drop"), some(100, 24), places(100, 300), some(300, 24), kernels=2)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_few_updates(count: int) -> None:
    for write in ("set", "add"):
        compare(scatter(write, "drop"), some(5, 3), places(5, count), some(count, 3), kernels=1 if count else 2)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float64, np.int8, np.uint16, np.int64, np.bool_])
def test_dtypes(dtype: Any) -> None:
    with jax.enable_x64(True):
        for write in ("set", "max") if dtype is np.bool_ else ("set", "add", "max"):
            x, v = (some(n).astype(np.int8).astype(dtype) for n in (200, 150))
            if not jnp.issubdtype(dtype, jnp.floating):
                x, v = np.abs(x.astype(np.int8)).astype(dtype), np.abs(v.astype(np.int8)).astype(dtype)
            compare(scatter(write, "drop"), x, places(200, 150), v)


FORMS: dict[str, tuple[Any, ...]] = {
    "two numbers": (lambda x, i, j, v: x.at[i, j].add(v), some(30, 40), places(30, 99), places(40, 99), some(99)),
    "apart": (lambda x, i, j, v: x.at[i, :, j].set(v), some(9, 3, 8), places(9, 99), places(8, 99), some(99, 3)),
    "columns": (lambda x, i, v: x.at[:, i].multiply(v), some(20, 30), places(30, 40), some(20, 40)),
    "parts of rows": (lambda x, i, v: x.at[i, 2:5].set(v), some(30, 9), places(30, 99), some(99, 3)),
    "rows of places": (lambda x, i, v: x.at[i].add(v), some(70), places(70, 30, 4), some(30, 4)),
    "from the end": (lambda x, i, v: x[::-1].at[i].set(v)[::2], some(70), places(70, 90), some(90)),
    "one number": (lambda x, i: x.at[i].add(1.0), some(70), places(70, 90)),
    "batch": (jax.vmap(lambda x, i, v: x.at[i].set(v)), some(5, 70), places(70, 5, 90), some(5, 90)),
    "batch of places": (jax.vmap(lambda x, i: x.at[i].add(2.0), (None, 0), 1), some(70), places(70, 5, 90)),
    "along": (
        lambda x, i, v: jnp.put_along_axis(x, i, v, axis=1, inplace=False),
        some(20, 30),
        places(30, 20, 9, inside=True),
        some(20, 9),
    ),
    "segments": (lambda x, i: jax.ops.segment_sum(x, i, num_segments=9), some(3000), places(9, 3000)),
    "counts": (lambda i: jnp.bincount(i, length=20), places(20, 3000, inside=True)),
    "an inverse": (lambda i: jnp.zeros_like(i).at[i].set(jnp.arange(200), unique_indices=True), RNG.permutation(200)),
    "windows": (
        jax.grad(lambda x, i: jnp.sin(jax.vmap(lambda j: lax.dynamic_slice(x, (j,), (4,)))(i)).sum()),
        some(300),
        places(300, 250),
    ),
    "embedding": (jax.grad(lambda e, i: jnp.sin(e[i]).sum()), some(200, 16), places(200, 300)),
    "along, gradient": (
        jax.grad(lambda x, i: jnp.sin(jnp.take_along_axis(x, i, 0)).sum()),
        some(20, 30),
        places(20, 50, 30, inside=True),
    ),
    "gradient of what is added": (
        jax.grad(lambda v, x, i: jnp.sin(x.at[i].add(v)).sum()),
        some(300),
        some(200),
        places(200, 300),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    function, *args = FORMS[name]
    compare(function, *args, kernels=2)


@pytest.mark.parametrize("write", ["set", "add", "multiply", "apply"])
def test_inside_of_a_loop(write: str) -> None:
    def step(c: Any, i: Any) -> tuple[Any, Any]:
        moved = jnp.tanh(c[i])
        return (c.at[i].apply(jnp.tanh) if write == "apply" else getattr(c.at[i], write)(moved)), c.sum()

    compare(lambda x, index: lax.scan(step, x, index), some(90), places(90, 4, 60))
    compare(jax.vmap(lambda x, index: lax.scan(step, x, index)), some(3, 20), places(20, 3, 4, 12))


def test_a_step_that_would_compare_too_much() -> None:
    loop = lambda x, index: lax.scan(lambda c, i: (c.at[i].add(1.0), None), x, index)[0]  # noqa: E731
    (left,) = j2t.transpile(loop, some(2000), places(2000, 3, 20_000)).leftovers
    assert "each of 2,000 elements would look through 20,000 updates, which takes longer than XLA" in left.why


@pytest.mark.parametrize("write", ["set", "add"])
def test_compiled(write: str) -> None:
    args = some(60, 8), places(60, 90), some(90, 8)
    got = j2t.fuse(scatter(write, "drop"), backend="machine")(*args)
    np.testing.assert_allclose(got, jax.jit(scatter(write, "drop"))(*args), rtol=1e-6)


def test_sums_repeat() -> None:
    """To the last bit, whatever is added."""
    args = RNG.standard_normal(50).astype(np.float32), places(50, 900), RNG.standard_normal(900).astype(np.float32)
    program = j2t.transpile(scatter("add", "drop"), *args)
    first = np.asarray(program(*args))
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(program(*args)).view(np.uint32), first.view(np.uint32))
