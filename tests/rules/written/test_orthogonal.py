"""QR and eigenvalues of small matrices against LAPACK's, and the kernels that they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.rules.written import jacobi, orthogonal
from tests.rules.written.test_linalg import close, numbers

SHAPES = ((1, 1), (2, 2), (3, 3), (5, 5), (16, 16), (7, 3), (3, 7), (5, 1), (1, 5))
SIZES = (1, 2, 3, 5, 16)


def symmetric(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    a = numbers(*shape, dtype=dtype)
    return a + np.swapaxes(a, -1, -2)


def awkward(height: int, width: int, dtype: Any = np.float32) -> np.ndarray:
    """A column of zeros, one that is a multiple of a unit vector, large numbers and small ones."""
    a = numbers(5, height, width, dtype=dtype)
    a[1, :, 0] = 0
    a[2, 1:, 0] = 0
    a[3] *= 1e25
    a[4] *= 1e-25
    return a


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("height, width", SHAPES)
def test_qr_has_the_signs_of_lapack(height: int, width: int, full: bool) -> None:
    a = awkward(height, width)
    mine = orthogonal.qr(jnp.asarray(a), full_matrices=full)
    theirs = lax.linalg.qr(a, full_matrices=full)
    close(mine[0], theirs[0], 1e-5)
    size = np.abs(a).max((-1, -2), keepdims=True)
    close(mine[1] / size, theirs[1] / size, 1e-5)


def test_householder_product() -> None:
    a = numbers(2, 5, 3)
    reflected, taus = orthogonal.geqrf(jnp.asarray(a))
    close(orthogonal.householder_product(reflected, taus), lax.linalg.householder_product(reflected, taus), 1e-6)


def eigenvalues_agree(a: Any, values: Any, vectors: Any, tolerance: float) -> None:
    """The signs of vectors are anybody's choice, and so are vectors of equal values."""
    size = np.abs(a).max()
    np.testing.assert_allclose(values / size, np.linalg.eigvalsh(a) / size, atol=tolerance)
    np.testing.assert_allclose((a @ vectors - vectors * values[:, None]) / size, 0, atol=tolerance)
    np.testing.assert_allclose(np.swapaxes(vectors, -1, -2) @ vectors, [np.eye(a.shape[-1])] * len(a), atol=tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues(size: int, dtype: Any) -> None:
    with jax.enable_x64(True):
        a = symmetric(6, size, size, dtype=dtype)
        a[1] = np.eye(size)
        a[2] = 1
        a[3] = np.diag(np.arange(size))[::-1, ::-1]
        a[4] = np.outer(a[4, 0], a[4, 0])
        read = np.tril(a) + np.triu(numbers(size, size), 1)  # above the diagonal nothing is read
        for which in (read, np.swapaxes(read, -1, -2)):
            lower = which is read
            vectors, values = jax.jit(lambda x, lower=lower: jacobi.eigh(x, lower=lower))(which.astype(dtype))
            eigenvalues_agree(a, np.asarray(values), np.asarray(vectors), 200 * float(np.finfo(dtype).eps))


def test_eigenvalues_of_what_is_no_number() -> None:
    a = symmetric(3, 3, 3)
    a[0, 1, 0], a[1, 2, 2] = np.nan, np.inf
    for result in jacobi.eigh(jnp.asarray(a), lower=True):
        assert np.isnan(result[:2]).all() and np.isfinite(result[2]).all()


@pytest.mark.parametrize("dtype, full", [(np.float32, False), (np.float64, True)])
@pytest.mark.parametrize("height, width", SHAPES)
def test_singular_values(height: int, width: int, dtype: Any, full: bool) -> None:
    """As for eigenvalues, signs of vectors are anybody's choice; those of no length are orthogonal to all others."""
    with jax.enable_x64(True):
        a = awkward(height, width, dtype=dtype)
        a[0, :, -1] = a[0, :, 0]
        how = {"full_matrices": full, "compute_uv": True}
        values, left, right = map(np.asarray, jax.jit(lambda a: jacobi.svd(a, **how))(a))
        expected = lax.linalg.svd(a, full_matrices=full)
        assert [each.shape for each in (left, values, right)] == [each.shape for each in expected]
        few, allowed = min(height, width), 100 * float(np.finfo(dtype).eps)
        size = np.maximum(np.abs(a).max((-1, -2), keepdims=True), dtype(1e-30))
        close(values / size[..., 0], np.asarray(expected[1]) / size[..., 0], allowed)
        close((left[..., :few] * values[:, None]) @ right[:, :few] / size, a / size, allowed)
        for each in (np.swapaxes(left, -1, -2), right):
            close(each @ np.swapaxes(each, -1, -2), np.stack([np.eye(each.shape[-2], dtype=dtype)] * len(a)), allowed)
        (alone,) = jax.jit(lambda a: jacobi.svd(a, full_matrices=full, compute_uv=False))(a)
        close(alone, values, 0)


def test_singular_values_of_what_is_no_number() -> None:
    a = numbers(3, 4, 3)
    a[0, 1, 0], a[1, 2, 2] = np.nan, np.inf
    for result in jacobi.svd(jnp.asarray(a), full_matrices=True, compute_uv=True):
        assert np.isnan(result[:2]).all() and np.isfinite(result[2]).all()


KERNELS: dict[str, tuple[Callable[..., Any], Any]] = {
    "qr": (jnp.linalg.qr, awkward(4, 4)[:3]),
    "qr of large ones": (jnp.linalg.qr, numbers(2, 16, 16)),
    "qr of tall ones": (lambda a: jnp.linalg.qr(a, mode="complete"), numbers(2, 6, 3)),
    "qr of wide ones": (jnp.linalg.qr, numbers(2, 3, 6)),
    "batch of qr": (jax.vmap(lambda a: jnp.linalg.qr(a)[1]), numbers(3, 5, 5)),
    "eigenvalues": (jnp.linalg.eigvalsh, symmetric(3, 3, 3)),
    "eigenvalues of large ones": (jnp.linalg.eigvalsh, symmetric(2, 16, 16)),
    "projection": (lambda a: jnp.linalg.eigh(a)[1] ** 2, symmetric(2, 5, 5)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), numbers(3, 4, 3)),
    "left vectors": (lambda a: jnp.linalg.svd(a, full_matrices=False)[0] ** 2, numbers(2, 3, 5)),
    "norms": (lambda a: jnp.linalg.norm(a, 2, axis=(-2, -1)), numbers(3, 3, 3)),
    "qr in a loop": (lambda a: lax.scan(lambda c, _: (jnp.linalg.qr(c)[0] * 1.1, c.sum()), a, None, 3), numbers(3, 3)),
    "eigenvalues in a loop": (
        lambda a: lax.scan(lambda c, _: (c / 2 + jnp.diag(jnp.linalg.eigvalsh(c)), c.sum()), a, None, 3),
        symmetric(3, 3),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    function, a = KERNELS[name]
    program = j2t.transpile(function, a)
    assert program.leftovers == (), program.explain()
    assert len(program.kernels) <= 2
    close(jax.tree.leaves(program(a)), jax.tree.leaves(jax.jit(function)(a)), 1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_gradients(size: int) -> None:
    a = numbers(2, size, size) + 3 * np.diag(np.arange(size, dtype=np.float32))
    for loss in (
        lambda a: sum(jnp.sin(x).sum() for x in jnp.linalg.qr(a)),
        lambda a: jnp.sin(jnp.linalg.eigvalsh(a)).sum(),
        lambda a: (jnp.linalg.eigh(a)[1] ** 2 * jnp.arange(size)).sum(),
        lambda a: jnp.sin(jnp.linalg.svd(a, compute_uv=False)).sum(),
        lambda a: (jnp.linalg.svd(a)[0] ** 2 * jnp.arange(size)).sum(),
        lambda a: jnp.sin(jnp.linalg.pinv(a)).sum(),
    ):
        fused = j2t.fuse(loss, backend="interpret")
        close(*(jax.jit(jax.grad(fn))(a) for fn in (fused, loss)), 2e-3)


def test_what_stays() -> None:
    a = numbers(17, 17)
    for function in (jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd):
        whys = [left.why for left in j2t.transpile(function, a).leftovers]
        assert whys == ["the matrix is larger than 16x16"]
    for function, why in (
        (lambda a: jax.scipy.linalg.qr(a, pivoting=True), "it exchanges columns"),
        (lambda a: lax.linalg.eigh(a, subset_by_index=(0, 2)), "it wants some eigenvalues only"),
    ):
        assert [left.why for left in j2t.transpile(function, a[:3, :3]).leftovers] == [why]
