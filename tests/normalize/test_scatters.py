"""Gathers and scatters become index work, selections and sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.normalize.scatters import settle_places
from tests.normalize.passing import outputs, primitives_of, same_bits, traced

Case = tuple[Any, ...]  # a function and its arguments


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def whole(*numbers: Any, dtype: Any = np.int32) -> np.ndarray:
    return np.array(numbers, dtype)


MANY = whole(1, 2, 1, -1, 99)  # one place twice, one from the end, one outside
BOTH = whole([1, 2, 1], [0, 0, 0])

KNOWN: dict[str, Case] = {
    "strided": (lambda x, v: x.at[1::2].set(v), some(8), some(4)),
    "strided_sum": (lambda x, v: x.at[1::3].add(v), some(8), some(3)),
    "backwards": (lambda x, v: x.at[::-1].set(v), some(8), some(8)),
    "strided_backwards": (lambda x, v: x.at[6:1:-2].set(v), some(8), some(3)),
    "window": (lambda x, v: x.at[2:5].set(v), some(8), some(3)),
    "window_sum": (lambda x, v: x.at[2:5].add(v), some(8), some(3)),
    "one": (lambda x, v: x.at[3].set(v), some(8), some()),
    "column": (lambda x, v: x.at[:, 1].set(v), some(4, 5), some(4)),
    "diagonal": (jnp.diagonal, some(4, 6)),
    "diagonal_beside": (lambda x: jnp.diagonal(x, 1), some(4, 4)),
    "diagonals": (jax.vmap(jnp.diagonal), some(3, 4, 4)),
    "diagonal_gradient": (jax.grad(lambda x: jnp.sin(jnp.diagonal(x)).sum()), some(4, 4)),
    "diagonal_gradients": (jax.vmap(jax.grad(lambda x: jnp.sin(jnp.diagonal(x)).sum())), some(2, 4, 4)),
    "filled_diagonal": (lambda x: jnp.fill_diagonal(x, 1.0, inplace=False), some(4, 4)),
    "other_diagonal": (lambda x, v: x.at[jnp.arange(4), 3 - jnp.arange(4)].add(v), some(4, 4), some(4)),
    "apart": (lambda x, v: x.at[jnp.arange(4), :, jnp.arange(4)].set(v), some(4, 2, 4), some(4, 2)),
    "every_other": (lambda x: x[:, jnp.arange(3) * 2 + 1], some(2, 8)),
    "from_the_end": (lambda x: x[5 - jnp.arange(4)], some(8, 2)),
}
COMPUTED: dict[str, Case] = {
    "row": (lambda x, v, k: x.at[k].add(v), some(4, 5), some(5), whole(2)[0]),
    "no_row": (lambda x, v, k: x.at[k].add(v), some(4, 5), some(5), whole(7)[0]),
    "column_product": (lambda x, v, k: x.at[:, k].mul(v), some(4, 5), some(4), whole(1)[0]),
    "columns": (jax.vmap(lambda x, v, k: x.at[:, k].max(v)), some(3, 4, 5), some(3, 4), whole(1, 2, 9)),
    "clipped": (lambda x, v, k: x.at[k].set(v, mode="clip"), some(8), some(), whole(99)[0]),
    "promised": (lambda x, v, k: x.at[k].add(v, mode="promise_in_bounds"), some(8), some(), whole(3)[0]),
    "part_of_a_row": (lambda x, v, k: x.at[k, 1:3].set(v), some(4, 4), some(2), whole(2)[0]),
    "many_sums": (lambda x, v, k: x.at[k].add(v), some(8), some(5), MANY),
    "many_differences": (lambda x, v, k: x.at[k].subtract(v), some(8), some(5), MANY),
    "many_products": (lambda x, v, k: x.at[k].multiply(v), some(8, 3), some(5, 3), MANY),
    "many_minima": (lambda x, v, k: x.at[k].min(v), some(8), some(5), MANY),
    "many_clipped": (lambda x, v, k: x.at[k].add(v, mode="clip"), some(8), some(5), MANY),
    "last_one_stays": (lambda x, v, k: x.at[k].set(v), some(8), some(5), MANY),
    "integers": (lambda x, v, k: x.at[k].set(v), whole(*range(8)), whole(5, 6, 7), MANY[:3]),
    "booleans": (lambda x, v, k: x.at[k].set(v), some(8) > 0, some(3) > 0, MANY[:3]),
    "small_indices": (lambda x, v, k: x.at[k].set(v), some(300), some(3), whole(1, 255, 3, dtype=np.uint8)),
    "two_numbers": (lambda x, v, k, n: x.at[k, n].add(v), some(4, 5), some(5), MANY, whole(0, 1, 0, 3, 3)),
    "rows_of_indices": (lambda x, v, k: x.at[k].add(v), some(8), some(2, 3), BOTH),
    "in_columns": (lambda x, v, k: x.at[:, k].add(v), some(3, 8), some(3, 2), whole(1, 1)),
    "batch": (jax.vmap(lambda x, v, k: x.at[k].add(v)), some(2, 8), some(2, 3), BOTH),
    "batch_of_updates": (jax.vmap(lambda x, v, k: x.at[k].add(v), (0, 0, None)), some(2, 8), some(2, 3), MANY[:3]),
    "batch_of_indices": (jax.vmap(lambda x, v, k: x.at[k].set(v), (None, 0, 0), 1), some(8), some(2, 3), BOTH),
    "gradients": (jax.vmap(jax.grad(lambda x, k: (x[k] ** 2).sum())), some(2, 8), BOTH),
}


@pytest.mark.parametrize("name", [*KNOWN, *COMPUTED])
def test_one_kernel_computes_the_same(name: str) -> None:
    function, *args = {**KNOWN, **COMPUTED}[name]
    (want,) = jax.tree.leaves(jax.jit(function)(*args))
    (got,) = outputs(normalize(traced(function, *args)), args)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    program = j2t.transpile(function, *args)
    assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
    np.testing.assert_allclose(program(*args), want, rtol=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_known_places_are_index_work(name: str) -> None:
    function, *args = KNOWN[name]
    names = primitives_of(normalize(traced(function, *args)))
    assert not [name for name in names if name.startswith(("scatter", "gather"))]


def test_before_and_after() -> None:
    assert str(normalize(traced(lambda x: jnp.diagonal(x), some(4, 4)))) == (
        "{ lambda ; a:f32[4,4]. let\n"
        "    b:f32[16] = reshape[dimensions=None new_sizes=(16,) sharding=None] a\n"
        "    c:f32[4] = slice[limit_indices=(16,) start_indices=(0,) strides=(5,)] b\n"
        "  in (c,) }"
    )


def test_nothing_is_added_to_the_rest() -> None:
    """x + 0.0 would change a -0.0."""
    x = np.full(4, -0.0, np.float32)
    closed = traced(lambda x, k: x.at[k].add(1.0), x, whole(1)[0])
    assert same_bits(outputs(settle_places(closed), (x, 1))[0], outputs(closed, (x, 1))[0])


def test_what_takes_too_many_comparisons_stays() -> None:
    closed = traced(lambda x, v, k: x.at[k].add(v), some(1000), some(1000), np.arange(1000))
    assert "scatter-add" in primitives_of(settle_places(closed))


def test_programs_without_places_are_returned_as_they_are() -> None:
    before = traced(lambda x: x + 1, some(3))
    assert settle_places(before) is before


@pytest.mark.parametrize("kind", [jnp.bfloat16, np.float16, np.float64])
def test_dtypes(kind: Any) -> None:
    with jax.enable_x64(True):
        for function in (COMPUTED["many_sums"][0], COMPUTED["last_one_stays"][0], KNOWN["strided"][0]):
            args = [some(8).astype(kind), some(4).astype(kind)]
            args += [MANY[1:]] if function is not KNOWN["strided"][0] else []
            program = j2t.transpile(function, *args)
            assert not program.leftovers
            tolerance = 1e-2 if np.dtype(kind).itemsize == 2 else 1e-12
            got, want = (np.asarray(out, np.float64) for out in (program(*args), jax.jit(function)(*args)))
            np.testing.assert_allclose(got, want, rtol=tolerance)


ADDED: tuple[Callable[..., Any], ...] = (lambda c, i, v: c.at[i].add(v), lambda c, i, v: c.at[i].set(v))


@pytest.mark.parametrize("write", ADDED)
def test_inside_of_a_loop(write: Callable[..., Any]) -> None:
    def loop(x: Any, places: Any) -> Any:
        return jax.lax.scan(lambda c, i: (write(c, i, jnp.sin(c[i]) + 1.0), c.sum()), x, places)

    places = whole([1, 2, 1], [0, 4, 9], [3, 3, 3])
    for args in ((some(5), places), (some(5), places[:, 0])):
        program = j2t.transpile(loop, *args)
        assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
        for got, want in zip(program(*args), jax.jit(loop)(*args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
