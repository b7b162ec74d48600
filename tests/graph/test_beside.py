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
