"""Factors of the terms of a contraction that become factors of its results, and those that cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.normalize import normalize
from jaxpr2triton.normalize.arrays.factors import take_out_factors
from tests.normalize.passing import primitives_of, traced

RNG = np.random.default_rng(0)
X, W, R, S = (RNG.normal(size=shape).astype(np.float32) for shape in ((20, 48), (48, 33), (20,), (48,)))


def before_and_after(function: Callable[..., Any], *args: Any) -> tuple[list[str], list[str]]:
    program = normalize(traced(function, *args))
    return primitives_of(program), primitives_of(take_out_factors(program))


TAKEN: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "of rows": (lambda x, w, r: (x * r[:, None]) @ w, (X, W, R)),
    "of columns": (lambda x, w, r: x @ (w * r[None, :33]), (X, W, np.resize(R, 33))),
    "on both sides": (lambda x, w, r: (x * r[:, None]) @ (w * 0.3), (X, W, R)),
    "a quotient": (lambda x, w, r: (x / r[:, None]) @ w, (X, W, R)),
    "a norm": (lambda x, w: (x / jnp.sqrt((x * x).sum(1, keepdims=True))) @ w, (X, W)),
    "within a product": (lambda x, w, r, s: (x * r[:, None] * s) @ w, (X, W, R, S)),
    "of several contractions": (lambda x, w, r: ((y := x * r[:, None]) @ w, y @ (w + 1)), (X, W, R)),
    "of batches": (
        lambda x, w, r: jnp.einsum("bmk,bkn->bmn", x * r[:, None, None], w),
        (X[:4, None], W[None].repeat(4, 0), R[:4]),
    ),
    "a small constant": (lambda x, w: (x / 4000) @ w, (X, W)),
    "turned": (lambda x, w, r: jnp.einsum("km,kn->nm", x * r[None, :], w), (X.T.copy(), W, R)),
    "of 16 bits": (
        lambda x, w, r: (x.astype(jnp.float32) * r[:, None]).astype(jnp.bfloat16) @ w,
        (X.astype(jnp.bfloat16), W.astype(jnp.bfloat16), R),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_terms_are_not_multiplied(name: str) -> None:
    function, args = TAKEN[name]
    program = normalize(traced(function, *args))
    taken = take_out_factors(program)
    assert taken is not program
    for eqn in taken.jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            assert not {"div", "convert_element_type"} & {
                other.primitive.name for other in taken.jaxpr.eqns if other.outvars[0] in eqn.invars
            }
    assert [var.aval for var in taken.jaxpr.outvars] == [var.aval for var in program.jaxpr.outvars]
    found = jax.core.eval_jaxpr(taken.jaxpr, taken.consts, *args)
    exact = jax.tree.leaves(function(*(np.asarray(arg, np.float32) for arg in args)))
    digits = 1e-5 if args[0].dtype == np.float32 else 2e-2
    for one, other in zip(found, exact, strict=True):
        one, other = (np.asarray(each, np.float64) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=digits * np.abs(other).max())


LEFT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "along the sum": (lambda x, w, s: (x * s) @ w, (X, W, S)),
    "read by others": (lambda x, w, r: ((y := x * r[:, None]) @ w, jnp.tanh(y)), (X, W, R)),
    "a result": (lambda x, w, r: ((y := x * r[:, None]) @ w, y), (X, W, R)),
    "whole numbers": (lambda x, w: (x * 3) @ w, (X.astype(np.int32), W.astype(np.int32))),
    "few terms": (lambda x, w, r: (x[:, :4] * r[:, None]) @ w[:4], (X, W, R)),
    "the largest": (lambda x, w: (x / jnp.abs(x).max(1, keepdims=True)) @ w, (X, W)),
    "made of the least": (lambda x, w: (x * jnp.sqrt(2 - x.min())) @ w, (X, W)),
    "a tiny constant": (lambda x, w: (x * 1e-30) @ w, (X, W)),
    "a huge constant": (lambda x, w: (x / 1e-30) @ w, (X, W)),
    "a sum": (lambda x, w, r: (x + r[:, None]) @ w, (X, W, R)),
    "what divides the terms": (lambda x, w, r: (r[:, None] / (2 + x)) @ w, (X, W, R)),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_terms_stay(name: str) -> None:
    function, args = LEFT[name]
    before, after = before_and_after(function, *args)
    assert before == after


FEW_BITS = {
    "scaled so that it fits": (lambda x, w, r: (x * r[:, None]).astype(jnp.float16) @ w, X * 3e5, 1e-5),
    "scaled between products": (
        lambda x, w, r: (
            ((x.astype(jnp.float16) * r[:, None].astype(jnp.float16)) * jnp.float16(300)[None, None] * w[:, 0]) @ w
        ),
        X * 3e3,
        1e-3,
    ),
    "eight bits": (
        lambda x, w, r: (x * r[:, None]).astype(jnp.float8_e5m2).astype(jnp.float16) @ w,
        X * 1e7,
        1e-7,
    ),
}


@pytest.mark.parametrize("name", FEW_BITS)
def test_few_bits_have_room_only_for_what_is_scaled(name: str) -> None:
    function, x, r = FEW_BITS[name]
    args = x, W.astype(np.float16), np.full(20, r, np.float32)
    found = j2t.fuse(function, backend="interpret", contractions="triton")(*args)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, jax.jit(function)(*args), rtol=0, atol=2e-2 * float(np.abs(found).max()))


def test_what_is_divided_by_its_largest_element_is_not_squared_before() -> None:
    def norm(x: Any) -> Any:
        peak = jnp.abs(x).max()
        return peak * jnp.sqrt((x / peak) @ (x / peak))

    x = X[0] * 1e30
    np.testing.assert_allclose(j2t.fuse(norm, backend="interpret", contractions="triton")(x), norm(x), rtol=1e-6)


def test_numbers_of_16_bits_are_multiplied_as_they_are() -> None:
    """What was of 16 bits before it was scaled still is."""
    args = (X.astype(np.float16), W.astype(np.float16), R)
    before, after = before_and_after(lambda x, w, r: (x.astype(np.float32) * r[:, None]).astype(np.float16) @ w, *args)
    assert before.index("mul") < before.index("dot_general") and after.index("mul") > after.index("dot_general")


def test_whole_numbers_of_few_bits_are_small_without_a_factor() -> None:
    def quantised(x: Any, w: Any) -> Any:
        return (x.astype(jnp.float32) * (jnp.abs(w).max() / 127)) @ w

    before, after = before_and_after(quantised, (X * 40).astype(np.int8), W)
    assert before.index("mul") < before.index("dot_general") and after.index("mul") > after.index("dot_general")


def test_what_a_library_makes_stays() -> None:
    """It would store results without their factors, for which 16 bits have no room."""
    q, k = (jax.ShapeDtypeStruct((4096, 4096), jnp.float16) for _ in range(2))
    (kernel,) = j2t.transpile(lambda q, k: lax.dot(q * 0.001, k), q, k, for_target="sm_90").kernels
    assert "q * 0.0010004044" in kernel.source


def test_a_norm_is_summed_beside_the_products() -> None:
    def normed(x: Any, w: Any) -> Any:
        return (x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w

    (kernel,) = j2t.transpile(normed, X, W, contractions="triton").kernels
    loop = kernel.source.split("for k_start")[1].split("    tl.store")[0]
    assert "tl.dot(x, w" in loop and "total_acc = total_acc + " in loop
