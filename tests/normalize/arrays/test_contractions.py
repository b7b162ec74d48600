"""Contractions over joined values become sums of contractions over the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.normalize.arrays.contractions import split_contractions, turn_contractions
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.calls.inline import inline_calls
from jaxpr2triton.normalize.calls.sharing import share_equal

RNG = np.random.default_rng(0)
A, B, C = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (3, 2), (3, 5)))
W = RNG.standard_normal((11, 6)).astype(np.float32)


def joined(a: Any, b: Any, c: Any) -> Any:
    return jnp.concatenate([a, b, c], 1)


def names(closed: Any) -> list[str]:
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


@pytest.mark.parametrize(
    ("fn", "products"),
    [
        (lambda a, b, c, w: joined(a, b, c) @ w, 3),
        (lambda a, b, c, w: w.T @ joined(a, b, c).T, 1),  # a transpose lies between
        (lambda a, b, c, w: jnp.einsum("ki,bk->ib", w, joined(a, b, c)), 3),
        (lambda a, b, c, w: jnp.einsum("bk,bk->b", joined(a, b, c), joined(c, a, b)), 3),
        (lambda a, b, c, w: jnp.concatenate([a, c[:, :4]], 0) @ w[:4], 1),  # joined along another dimension
    ],
)
def test_parts_meet_their_rows(fn: Callable[..., Any], products: int) -> None:
    plain = jax.make_jaxpr(fn)(A, B, C, W)
    closed = split_contractions(plain)
    assert names(closed).count("dot_general") == products
    (found,), (wanted,) = (jax.core.eval_jaxpr(c.jaxpr, c.consts, A, B, C, W) for c in (closed, plain))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_nothing_to_do() -> None:
    closed = jax.make_jaxpr(lambda a, w: a @ w)(A, W[:4])
    assert split_contractions(closed) is closed


@pytest.mark.parametrize(
    ("fn", "transposes"),
    [
        (lambda a, b: (a.T @ b).T, 1),  # the one of `a`
        (lambda a, b: jnp.einsum("bij,bik->bkj", a.reshape(3, 2, 2), b.reshape(3, 2, 1)), 0),
        (lambda a, b: jnp.transpose(jnp.einsum("bij,bik->bjk", a.reshape(3, 2, 2), b.reshape(3, 2, 1)), (1, 0, 2)), 1),
        (lambda a, b: [(a.T @ b).T, a.T @ b + 1], 2),  # read both ways: computing it twice would cost more
        (lambda a, b: jnp.outer(a[0], b[0]).T, 1),
        (lambda a, b: jnp.tensordot(a[0], b[0], 0).T, 0),
    ],
)
def test_contractions_are_turned_round(fn: Callable[..., Any], transposes: int) -> None:
    plain = jax.make_jaxpr(fn)(A, B)
    closed = remove_dead(turn_contractions(share_equal(inline_calls(plain))))
    assert closed.out_avals == plain.out_avals
    assert names(closed).count("dot_general") <= 1
    assert names(closed).count("transpose") == transposes
    for got, want in zip(
        jax.core.eval_jaxpr(closed.jaxpr, closed.consts, A, B), jax.tree.leaves(fn(A, B)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_each_operand_keeps_its_precision() -> None:
    def fn(a: Any, b: Any) -> Any:
        return lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=("highest", "default")).T

    (eqn,) = remove_dead(turn_contractions(jax.make_jaxpr(fn)(A, B))).jaxpr.eqns
    assert eqn.params["precision"] == (lax.Precision.DEFAULT, lax.Precision.HIGHEST)
