"""lineax: linear systems of many kinds behind one function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax

from examples.libraries.example import Example


def small_systems(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    """A batch of 4 x 4 systems by LU."""

    def solve(matrix: jax.Array, vector: jax.Array) -> jax.Array:
        return lineax.linear_solve(lineax.MatrixLinearOperator(matrix), vector).value

    return jax.vmap(solve)(matrices, vectors)


def tridiagonal(diagonal: jax.Array, lower: jax.Array, upper: jax.Array, vector: jax.Array) -> jax.Array:
    """A tridiagonal system by Thomas' algorithm: a loop down and a loop up."""
    operator = lineax.TridiagonalLinearOperator(diagonal, lower, upper)
    return lineax.linear_solve(operator, vector).value


def conjugate_gradients(diagonal: jax.Array, vector: jax.Array) -> jax.Array:
    """A positive definite system, known only by what it does to a vector."""

    def times(x: jax.Array) -> jax.Array:
        return diagonal * x + 0.1 * jnp.sum(x)

    operator = lineax.FunctionLinearOperator(
        times, jax.eval_shape(lambda: vector), lineax.positive_semidefinite_tag
    )
    return lineax.linear_solve(operator, vector, lineax.CG(rtol=1e-5, atol=1e-5)).value


def _systems(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    matrices = jax.random.normal(key, (64, 4, 4)) + 4 * jnp.eye(4)
    return matrices, jax.random.normal(jax.random.fold_in(key, 1), (64, 4))


def _bands(key: jax.Array) -> tuple[jax.Array, ...]:
    draws = jax.random.uniform(key, (4, 32))
    return 4 + draws[0], draws[1, 1:], draws[2, 1:], draws[3]


def _positive(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    draws = jax.random.uniform(key, (2, 16))
    return 1 + draws[0], draws[1]


EXAMPLES = (
    Example(small_systems, _systems, gradient=True, batched=(0, 1)),
    Example(tridiagonal, _bands, gradient=True),
    Example(conjugate_gradients, _positive, gradient=True),
)
