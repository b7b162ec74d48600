"""Sums that programs make beside their parts of a contraction."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t

X, G = jnp.ones((40, 48)), jnp.ones((40, 70))


def layer_back(x: Any, g: Any) -> Any:
    """What the gradients of a layer's weights and of its bias are."""
    return x.T @ jnp.tanh(g), jnp.tanh(g).sum(0)


def normed(x: Any, w: Any) -> Any:
    return (x.T @ w) * jax.lax.rsqrt((x * x).sum(0) + 1)[:, None]


def maxima_of_both(x: Any, g: Any) -> Any:
    return x.T @ g, x.max(0), g.max(0), 2 * jnp.abs(g).sum(0)


def kernels(fn: Any, *args: Any) -> list[Any]:
    return j2t.transpile(fn, *args, contractions="triton", strict=True).kernels


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [layer_back, normed, maxima_of_both])
def test_one_kernel_reads_everything_once(fn: Any, backend: str) -> None:
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(each.shape), jnp.float32) for each in (X, G)]
    (kernel,) = kernels(fn, *args)
    assert kernel.bytes_read == sum(each.nbytes for each in args)
    found = j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def gate_of_a_normed_token(x: Any, g: Any, w: Any, u: Any) -> Any:
    wide = x.astype(jnp.float32)
    h = (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * g
    return jax.nn.silu(h @ w) * (h @ u)


def normed_and_norm(x: Any, w: Any) -> Any:
    norm = jax.lax.rsqrt((x * x).sum() + 1)
    return (x * norm) @ w, norm


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_products_of_few_normed_rows_are_shared_out(rows: int, dtype: Any) -> None:
    """A token of a decoder: all weights are read once, by as many programs as a device has processors, or more."""
    shapes = [(rows, 2048), (2048,), (2048, 8192), (2048, 8192)]
    args = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    found = j2t.transpile(gate_of_a_normed_token, *args, for_target="sm_90").kernels
    weights = 2 * args[2].size * jnp.dtype(dtype).itemsize
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in found) < 1.1 * weights
    wide = max(found, key=lambda kernel: kernel.bytes_read)
    assert len(found) == (1 if rows == 1 else 3) and np.prod(wide.grid) >= 128


@pytest.mark.parametrize("rows", [(), (1,)], ids=["vector", "row"])
@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_a_row_is_summed_beside_its_products(rows: tuple[int, ...], backend: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [(*rows, 96), (96,), (96, 80), (96, 80)]
    args = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]
    fused = j2t.fuse(gate_of_a_normed_token, backend=backend, contractions="triton", strict=True)
    (kernel,) = kernels(gate_of_a_normed_token, *args)
    assert kernel.bytes_read == sum(each.nbytes for each in args)
    np.testing.assert_allclose(fused(*args), gate_of_a_normed_token(*args), rtol=1e-4, atol=1e-4)
    ct = jnp.asarray(rng.standard_normal((*rows, 80)), jnp.float32)

    def pulled(f: Any) -> Any:
        return jax.grad(lambda *args: (f(*args) * ct).sum(), tuple(range(4)))

    both = pulled(fused)(*args), j2t.fuse(pulled(gate_of_a_normed_token), backend=backend)(*args)
    for found in both:
        for one, other in zip(found, pulled(gate_of_a_normed_token)(*args), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_the_first_program_stores_what_is_made_of_a_row() -> None:
    rng = np.random.default_rng(2)
    args = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((64,), (64, 600))]
    (kernel,) = kernels(normed_and_norm, *args)
    assert kernel.grid[0] > 1 and "tl.program_id(0) == 0" in kernel.source
    found = j2t.fuse(normed_and_norm, backend="interpret", contractions="triton", strict=True)(*args)
    for one, other in zip(found, normed_and_norm(*args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_the_first_programs_store_them() -> None:
    (kernel,) = kernels(maxima_of_both, X, G)
    stores = [line.strip() for line in kernel.source.splitlines() if "tl.store" in line]
    assert [line.count("tl.program_id(0) == 0") + 2 * line.count("tl.program_id(1) == 0") for line in stores] == [
        0,
        1,
        2,
        2,
    ]


def test_one_of_many_dimensions() -> None:
    """Programs are counted in one number where a launch has too few dimensions for their axes."""
    x, g = jnp.ones((3, 4, 40, 48)), jnp.ones((3, 4, 40, 70))
    fn = lambda x, g: (jnp.einsum("abkm,abkn->abmn", x, jnp.tanh(g)), jnp.tanh(g).sum(2))  # noqa: E731
    (kernel,) = kernels(fn, x, g)
    assert "== 0" in kernel.source
    for one, other in zip(j2t.fuse(fn, backend="interpret", contractions="triton")(x, g), fn(x, g)):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, g: (x.T @ g, (g * jnp.arange(40.0)[:, None]).sum(1)),  # along another axis
        lambda x, g: (x.T @ g, jnp.linalg.norm(g - g.mean(0), axis=0)),  # two sums, one after the other
        lambda x, g: (x.T @ g, (g.T @ jnp.arange(40.0))),  # a product itself
    ],
    ids=["rows", "of a sum", "product"],
)
def test_others_have_kernels_of_their_own(fn: Any) -> None:
    assert len(kernels(fn, X, G)) > 1


def test_many_programs_do_not_do_the_same() -> None:
    wide = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((4096, 1024), (4096, 2048))]
    assert len(kernels(layer_back, *wide)) > 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (x @ w) * jax.lax.rsqrt((x * x).sum(1) + 1)[:, None],
        lambda x, w: (x @ w) + (w * w).sum(0),
        lambda x, w: (x @ w) + (w * w).sum(0) + (x * x).sum(1)[:, None],
    ],
)
def test_large_products_do_not_wait_for_sums_beside_them(fn: Any) -> None:
    """Each program would make the sums of all rows, or of all columns, or of both: then there would be one program."""
    shapes = (8192, 1024), (1024, 8192)
    args = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    made = j2t.transpile(fn, *args, for_target="sm_90", contractions="triton").kernels
    assert all(np.prod(kernel.grid) >= 132 for kernel in made)
    (product,) = (kernel for kernel in made if "tl.dot(" in kernel.source)
    assert product.bytes_written == 4 * 8192**2
