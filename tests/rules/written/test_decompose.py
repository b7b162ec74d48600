"""Decompositions against their primitives: the same numbers, the same dtype, and nothing inside without a row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton.rules.pointwise.table import POINTWISE
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS
from tests.rules.pointwise.pointwise_cases import BOOL, DTYPES, FLOATS, INTEGERS, agree, arrays_for, compiled, exists

Signature = tuple[np.dtype, ...]
Params = dict[str, Any]

ORDER = [(dtype, dtype) for dtype in DTYPES]
POWERS: list[Params] = [{"y": y} for y in (-5, -1, 0, 1, 2, 3, 10)]
FORMATS: list[Params] = [
    {"exponent_bits": exponent, "mantissa_bits": mantissa}
    for exponent, mantissa in ((8, 7), (5, 10), (8, 10), (5, 2), (4, 3), (3, 4), (8, 23), (11, 52), (8, 1), (2, 1))
]


def signatures(name: str) -> Iterator[tuple[Signature, Params]]:
    """The calls of a primitive that are tested."""
    match name:
        case "integer_pow":
            yield from itertools.product([(dtype,) for dtype in FLOATS], POWERS)
            yield from itertools.product([(dtype,) for dtype in INTEGERS[::3]], [p for p in POWERS if p["y"] >= 0])
        case "polynomial":
            yield from (((dtype,) * count, {}) for dtype in FLOATS for count in (2, 3, 5))
        case "reduce_precision":
            yield from itertools.product([(dtype,) for dtype in FLOATS], FORMATS)
        case "cbrt" | "digamma" | "bessel_i1e":
            yield from (((dtype,), {}) for dtype in FLOATS)
        case "nextafter":
            yield from (((dtype, dtype), {}) for dtype in FLOATS)
        case "eq_to" | "le_to" | "lt_to":
            yield from ((dtypes, {}) for dtypes in ORDER if name == "eq_to" or dtypes[0] != BOOL)
        case "population_count" | "clz":
            yield from (((dtype,), {}) for dtype in INTEGERS)


DIGITS = {"bessel_i1e": 16, "cbrt": 4, "digamma": 64, "integer_pow": 16, "polynomial": 16}
FLOOR = {"digamma": 1.0, "polynomial": 1e4}
WITH_ROWS = {*POINTWISE, "broadcast_in_dim"}
CASES = [(name, dtypes, params) for name in DECOMPOSITIONS if exists(name) for dtypes, params in signatures(name)]


def show(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(str, value.values() if isinstance(value, dict) else value))


def decomposed(name: str, params: Params, *arrays: Any) -> jax.Array:
    return DECOMPOSITIONS[name](*arrays, **params)


@pytest.mark.parametrize("name, dtypes, params", CASES, ids=show)
def test_decompositions_compute_what_jax_computes(name: str, dtypes: Signature, params: Params) -> None:
    narrow = all(dtype.itemsize <= 4 for dtype in dtypes)
    for x64 in (True, False) if narrow and dtypes[0].itemsize == 4 else (True,):
        with jax.enable_x64(x64):
            arrays = arrays_for(dtypes, np.random.default_rng())
            got = np.asarray(jax.jit(lambda *xs: decomposed(name, params, *xs))(*arrays))
            (wanted,) = map(np.asarray, compiled(((name, tuple(params.items())),))(*arrays))
        assert got.dtype == wanted.dtype
        right = agree(got, wanted, DIGITS.get(name, 0), floor=FLOOR.get(name, 0.0))
        if name == "digamma":  # -inf at a zero, as in newer versions of JAX; older ones give NaN
            right = np.where(arrays[0] == 0, got == -np.inf, right)
        wrong = [f"{[x[n] for x in arrays]}: {got[n]!r}, expected {wanted[n]!r}" for n in np.flatnonzero(~right)[:4]]
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [name for name in DECOMPOSITIONS if exists(name)])
def test_decompositions_contain_only_primitives_with_rows(name: str) -> None:
    with jax.enable_x64(True):
        for dtypes, params in signatures(name):
            specs = [jax.ShapeDtypeStruct((3,), dtype) for dtype in dtypes]
            jaxpr = jax.make_jaxpr(lambda *xs: decomposed(name, params, *xs))(*specs)  # noqa: B023  # traced at once
            assert {eqn.primitive.name for eqn in jaxpr.eqns} <= WITH_ROWS


def test_a_polynomial_is_horners_rule() -> None:
    x, coefficients = np.linspace(-2, 2, 9), (1.0, -3.0, 0.5, 2.0)
    with jax.enable_x64(True):
        got = decomposed("polynomial", {"unroll": 4}, jnp.asarray(x), *coefficients)
    np.testing.assert_allclose(got, np.polynomial.polynomial.polyval(x, coefficients), rtol=1e-14)


def test_nothing_has_both_a_row_and_a_decomposition() -> None:
    assert not set(DECOMPOSITIONS) & set(POINTWISE)


def test_every_decomposition_is_exercised() -> None:
    assert {name for name, _, _ in CASES} == {name for name in DECOMPOSITIONS if exists(name)}
    assert all(list(signatures(name)) for name in DECOMPOSITIONS)
