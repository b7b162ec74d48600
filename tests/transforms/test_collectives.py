"""Collectives over the axis of a `vmap` around a fused function are in its kernels, as what JAX makes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

Fn = Callable[..., Any]
X = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


def normalized(x: Any) -> Any:
    """A batch norm."""
    mean = lax.pmean(x, "rows")
    return (x - mean) * lax.rsqrt(lax.pmean((x - mean) ** 2, "rows") + 1e-5)


def ring(x: Any) -> Any:
    return x - lax.ppermute(x, "rows", [(i, (i + 1) % 6) for i in range(6)])


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.tanh(c - lax.pmean(c, "rows")), c.sum()), x, None, length=4)


def outer(x: Any) -> Any:
    return jnp.outer(jnp.arange(6.0), x)


PROGRAMS: Mapping[str, Fn] = {
    "normalized": normalized,
    "sum": lambda x: jnp.sin(lax.psum(x, "rows") * x),
    "sum of ones": lambda x: x / lax.psum(1, "rows"),
    "place": lambda x: x * lax.axis_index("rows"),
    "place alone": lambda x: (x, lax.axis_index("rows") * 2.0),
    "all": lambda x: jnp.tanh(lax.all_gather(x, "rows")).sum(0) * x,
    "ring": ring,
    "shuffled": lambda x: lax.pshuffle(x, "rows", [1, 0, 2, 3, 5, 4]) - x,
    "scattered": lambda x: lax.psum_scatter(outer(x), "rows") * 2,
    "exchanged": lambda x: lax.all_to_all(outer(x), "rows", 0, 0) * 2,
    "scanned": scanned,
    "checkpointed": jax.checkpoint(normalized),
}
NOT_DIFFERENTIABLE: Mapping[str, Fn] = {
    "largest": lambda x: x - lax.pmax(x, "rows"),
    "least": lambda x: x - lax.pmin(x, "rows"),
    "largest place": lambda x: lax.pmax(x.argmax(), "rows") + x,
}


def batched(f: Fn) -> Fn:
    return jax.vmap(f, axis_name="rows")


def total(f: Fn) -> Fn:
    return lambda x: sum(jnp.sum(jnp.sin(out)) for out in jax.tree.leaves(f(x)))


def compare(transformed: Callable[[Fn], Fn], f: Fn, *args: Any, strict: bool = True) -> None:
    got = transformed(j2t.fuse(f, backend="interpret", strict=strict))(*args)
    for one, other in zip(*map(jax.tree.leaves, (got, transformed(jax.jit(f))(*args))), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", [*PROGRAMS, *NOT_DIFFERENTIABLE])
def test_values(name: str) -> None:
    compare(batched, {**PROGRAMS, **NOT_DIFFERENTIABLE}[name], X)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_the_batch(name: str) -> None:
    compare(lambda f: jax.grad(total(batched(f))), PROGRAMS[name], X)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_in_the_batch(name: str) -> None:
    compare(lambda f: batched(jax.grad(total(f))), PROGRAMS[name], X)


@pytest.mark.parametrize("name", ["normalized", "sum", "scanned"])
def test_tangents_in_the_batch(name: str) -> None:
    compare(lambda f: batched(lambda x: jax.jvp(f, (x,), (x,))), PROGRAMS[name], X)


def test_second_derivatives_in_the_batch() -> None:
    compare(lambda f: batched(jax.hessian(total(f))), PROGRAMS["sum"], X, strict=False)  # contractions stay with XLA


def test_two_axes() -> None:
    def f(x: Any) -> Any:
        return x - lax.pmean(x, ("rows", "columns")) + lax.axis_index("columns") * lax.psum(x, "rows")

    compare(lambda f: jax.vmap(jax.vmap(f, axis_name="columns"), axis_name="rows"), f, X)


def test_operands_that_have_no_batch() -> None:
    """They are the same everywhere, but not what is made of them and of a place."""

    def f(x: Any, w: Any) -> tuple[Any, ...]:
        return lax.axis_index("rows") + w, lax.psum(w, "rows"), x * lax.psum(w, "rows")

    compare(lambda f: jax.vmap(f, (0, None), axis_name="rows"), f, X, X[0])
    compare(lambda f: jax.vmap(f, (None, None), axis_name="rows", axis_size=3), f, X, X[0])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.int32, np.uint8])
def test_dtypes(dtype: Any) -> None:
    f = lambda x: (lax.psum(x, "rows"), lax.pmax(x, "rows") - x, lax.pmin(x, "rows"))  # noqa: E731
    compare(batched, f, np.arange(12).reshape(4, 3).astype(dtype))


def test_what_nobody_reads() -> None:
    compare(lambda f: batched(lambda x: f(x)[1]), lambda x: (lax.psum(x, "rows"), x * 2), X)


def test_over_an_axis_of_a_mesh_it_stays_with_xla() -> None:
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("rows")
    share = lambda f: jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)  # noqa: E731
    compare(share, lambda x: x - lax.pmean(x, "rows"), X, strict=False)
    with pytest.raises(j2t.NotFusible, match="side effects"):
        share(j2t.fuse(lambda x: x - lax.pmean(x, "rows"), strict=True))(X)


def test_a_batch_within_the_share_of_a_device() -> None:
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("devices")

    def share(f: Fn) -> Fn:
        return jax.shard_map(batched(f), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)

    compare(share, normalized, X)
