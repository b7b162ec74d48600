"""Primitives without a word in Triton are written with others."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.normalize.numbers.decompose import decompose
from jaxpr2triton.normalize.rewrite import rewrite
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS
from tests.normalize.passing import after, primitives_of, traced

X = np.array([0.5, -1.5, 2.0], np.float32)


def test_before_and_after() -> None:
    assert str(after(decompose, lambda x: x**3, X)) == (
        "{ lambda ; a:f32[3]. let b:f32[3] = mul a a; c:f32[3] = mul a b in (c,) }"
    )


def test_until_none_is_left() -> None:
    result = after(decompose, lambda x: (lax.clz(x), lax.population_count(x)), np.array([0, 1, 77, -5], np.int32))
    assert DECOMPOSITIONS.keys().isdisjoint(primitives_of(result))


def test_constants_among_the_operands_get_the_shape_of_the_others() -> None:
    result = after(decompose, lambda x: lax.nextafter_p.bind(x, np.float32(1)), X)
    assert DECOMPOSITIONS.keys().isdisjoint(primitives_of(result))


def test_a_wanted_accuracy_is_no_operand() -> None:
    result = decompose(traced(lambda x: lax.cbrt(x), X))
    assert "cbrt" not in primitives_of(result)


def test_new_equations_have_the_line_of_the_old() -> None:
    def user(x: Any) -> Any:
        return lax.cbrt(x)

    frames = {user_frame(eqn) for eqn in decompose(traced(user, X)).jaxpr.eqns}
    assert [(frame.function, frame.line) for frame in frames if frame is not None] == [
        (user.__qualname__, user.__code__.co_firstlineno + 1)
    ]


def test_dtypes_without_a_place_in_kernels_stay() -> None:
    assert primitives_of(after(decompose, lambda z: z**3, np.array([1 + 2j], np.complex64))) == ["integer_pow"]


def test_an_expansion_without_end_is_our_bug() -> None:
    with pytest.raises(CompilerBug, match=r"^a rewrite of `sin` does not come to an end"):
        rewrite(traced(jnp.sin, X), lambda node, rewriter: rewriter.expand(jnp.sin, node.args))
