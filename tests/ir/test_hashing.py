"""The hash behind random bits, as an equation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p

import jaxpr2triton as j2t
from jaxpr2triton.ir.hashing import threefry_p
from jaxpr2triton.normalize import normalize

RNG = np.random.default_rng(1)


def numbers(*shape: int) -> Any:
    return RNG.integers(0, 1 << 32, shape, np.uint32)


def expected(*words: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, threefry2x32_p.bind(*np.broadcast_arrays(*words))))


def both(*words: Any) -> tuple[Any, Any]:
    return threefry_p.bind(*words, word=0), threefry_p.bind(*words, word=1)


@pytest.mark.parametrize(
    "shapes", [((), (), (), ()), ((3,), (3,), (3,), (3,)), ((), (), (), (4,)), ((2, 3), (), (), ())]
)
def test_words(shapes: tuple[tuple[int, ...], ...]) -> None:
    words = [numbers(*shape) for shape in shapes]
    for got, jitted, want in zip(both(*words), jax.jit(both)(*words), expected(*words), strict=True):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(jitted, want)


@pytest.mark.parametrize("dims", [(0, 0, 0, 0), (0, None, None, None), (None, 1, None, 0), (None, None, None, 1)])
@pytest.mark.parametrize("scalars", [False, True])
def test_batched(dims: tuple[int | None, ...], scalars: bool) -> None:
    one = () if scalars else (3,)
    dims = tuple(min(dim, len(one)) if dim is not None else None for dim in dims)
    shapes = [one if dim is None else (*one[:dim], 5, *one[dim:]) for dim in dims]
    words = [numbers(*shape) for shape in shapes]
    rows = [[np.take(each, n, dim) if dim is not None else each for each, dim in zip(words, dims)] for n in range(5)]
    for word, got in enumerate(jax.vmap(both, dims)(*words)):
        np.testing.assert_array_equal(got, np.stack([expected(*row)[word] for row in rows]))


def test_known_words_are_hashed_now() -> None:
    closed = normalize(jax.make_jaxpr(lambda x: x + jax.random.bits(jax.random.key(3), ()))(np.uint32(1)))
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns] == ["add"]


def test_in_a_kernel_both_words_come_from_one_call() -> None:
    draw = functools.partial(jax.random.bits, shape=(4,))
    (kernel,) = j2t.transpile(draw, jax.ShapeDtypeStruct((2,), np.uint32)).kernels
    assert kernel.source.count("= _threefry(") == 1
    key = jax.random.PRNGKey(11)
    np.testing.assert_array_equal(j2t.transpile(draw, key)(key), draw(key))


def test_one_word_alone() -> None:
    def first(key: Any) -> Any:
        return threefry2x32_p.bind(*jnp.broadcast_arrays(key[0], key[1], jnp.uint32(0), key[0]))[0]

    key = numbers(2)
    program = j2t.transpile(first, key)
    assert "_threefry(" in program.source and ")[0]" in program.source
    np.testing.assert_array_equal(program(key), first(key))
