"""Small linear algebra against JAX's: the functions themselves, and the kernels that they become."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.rules.written import linalg

SIZES = (1, 2, 3, 5, 16)
PATTERNS = list(itertools.product((True, False), repeat=4))


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    a = numbers(*shape, dtype=dtype)
    return a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)


def close(mine: Any, theirs: Any, tolerance: float) -> None:
    for got, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky(size: int, dtype: Any) -> None:
    with jax.enable_x64(True):
        matrices = positive(3, size, size, dtype=dtype)
        matrices[1] *= -1
        matrices += np.triu(numbers(size, size, dtype=dtype), 1)  # above the diagonal nothing is read
        close(linalg.cholesky(jnp.asarray(matrices)), lax.linalg.cholesky(matrices, symmetrize_input=False), 1e-4)


@pytest.mark.parametrize("size", SIZES)
def test_triangular_solve(size: int) -> None:
    a = np.tril(positive(2, size, size)) / size + np.triu(numbers(2, size, size), 1) / 8
    for left, lower, transposed, unit in PATTERNS:
        b = numbers(2, size, 3) if left else numbers(2, 3, size)
        how = dict(left_side=left, lower=lower, transpose_a=transposed, conjugate_a=False, unit_diagonal=unit)
        close(
            linalg.triangular_solve(jnp.asarray(a), jnp.asarray(b), **how),
            lax.linalg.triangular_solve(a, b, **how),
            2e-2 if unit else 1e-4,
        )


@pytest.mark.parametrize("height, width", [*itertools.product(SIZES[:4], SIZES[:4]), (16, 5), (3, 16)])
def test_lu(height: int, width: int) -> None:
    matrices = numbers(3, height, width)
    matrices[1, :, 0] = 0
    pivots = lax.linalg.lu(matrices)[1]
    close(linalg.lu(jnp.asarray(matrices)), lax.linalg.lu(matrices), 2e-3)
    close(
        linalg.lu_pivots_to_permutation(pivots, permutation_size=height),
        lax.linalg.lu_pivots_to_permutation(pivots, height),
        0,
    )


def test_a_matrix_of_zeros_is_its_own_factor() -> None:
    for size in SIZES[:4]:
        close(linalg.lu(jnp.zeros((size, size))), lax.linalg.lu(jnp.zeros((size, size))), 0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, b: jnp.linalg.cholesky(a),
    "solve": jnp.linalg.solve,
    "solve_vector": lambda a, b: jnp.linalg.solve(a, b[:, 0]),
    "det": lambda a, b: jnp.linalg.det(a),
    "slogdet": lambda a, b: jnp.linalg.slogdet(a)[1],
    "cho_solve": lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b),
    "triangular": lambda a, b: jax.scipy.linalg.solve_triangular(a, b, trans=1, unit_diagonal=True),
    "lu": lambda a, b: jax.scipy.linalg.lu(a)[1:],
    "lu_solve": lambda a, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b),
}


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_of_a_batch(name: str, size: int) -> None:
    function = jax.vmap(FUNCTIONS[name])
    arguments = positive(5, size, size), numbers(5, size, 2)
    program = j2t.transpile(function, *arguments)
    assert not program.leftovers, program.explain()
    close(program(*arguments), jax.jit(function)(*arguments), 1e-3)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str, size: int) -> None:
    function, arguments = FUNCTIONS[name], (positive(size, size), numbers(size, 2))

    def loss(*args: Any) -> Any:
        return sum(jnp.sin(out).sum() for out in jax.tree.leaves(function(*args)))

    mine = j2t.fuse(loss, backend="interpret")
    close(*(jax.jit(jax.grad(fn, (0, 1)))(*arguments) for fn in (mine, loss)), 5e-3)
    close(jax.jvp(mine, arguments, arguments), jax.jvp(loss, arguments, arguments), 5e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inside_of_a_loop(name: str) -> None:
    def loop(a: Any, b: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            outs = jax.tree.leaves(FUNCTIONS[name](carry, b))
            return 0.9 * carry + 0.01 * sum(out.sum() for out in outs) * jnp.eye(3), outs

        return lax.scan(step, a, None, length=4)

    arguments = positive(3, 3), numbers(3, 2)
    program = j2t.transpile(loop, *arguments)
    assert not program.leftovers, program.explain()
    close(program(*arguments), jax.jit(loop)(*arguments), 1e-3)


def test_large_matrices_stay_with_xla() -> None:
    (left,) = j2t.transpile(lax.linalg.cholesky, positive(17, 17)).leftovers
    assert (left.primitive, left.why) == ("cholesky", "the matrix is larger than 16x16")
