"""Gathers and scatters become index work, selections and sums."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.normalize.arrays.scatters import lower_places
from jaxpr2triton.normalize.passes import normalize
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
    "every_other": (lambda x: x[:, jnp.arange(3) * 2 + 1], some(2, 8)),
    "from_the_end": (lambda x: x[5 - jnp.arange(4)], some(8, 2)),
}
COMPUTED: dict[str, Case] = {
    "apart": (lambda x, v: x.at[jnp.arange(4), :, jnp.arange(4)].set(v), some(4, 2, 4), some(4, 2)),
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
TWICE = whole([0, 1, 1], [4, 4, 4])
TWENTY = np.arange(20, dtype=np.int32) * 7 % 9 - 2
SINES: dict[str, Case] = {  # what a function gives for the old values
    "known": (lambda x: x.at[jnp.array([1, 3])].apply(jnp.sin), some(5)),
    "batch": (jax.vmap(lambda x: x.at[jnp.array([1, 3])].apply(jnp.sin)), some(2, 5)),
    "one": (lambda x, k: x.at[k].apply(jnp.sin), some(5), whole(3)[0]),
    "window": (lambda x: x.at[1:4].apply(jnp.cos), some(5)),
    "strided": (lambda x: x.at[::2].apply(jnp.exp), some(5)),
    "many_strided": (lambda x: x.at[::2].apply(jnp.exp), some(500)),
    "rows": (lambda x, k: x.at[k].apply(jnp.exp), some(5, 3), MANY),
    "columns": (lambda x, k: x.at[:, k].apply(jnp.exp), some(3, 5), MANY),
    "in_a_loop": (lambda x, k: x.at[k].apply(lambda v: v * 0.5 + 1), some(5), TWENTY),
    "rows_in_a_loop": (lambda x, k: x.at[k, 1:3].apply(lambda v: v * 0.5 + 1), some(5, 4), TWENTY),
    "batch_in_a_loop": (
        jax.vmap(lambda x, k: x.at[k].apply(lambda v: v * 0.5 + 1, mode="clip"), (0, None)),
        some(3, 5),
        TWENTY,
    ),
    "in_a_loop_in_a_loop": (
        lambda x, ks: jax.lax.scan(lambda c, k: (c.at[k].apply(lambda v: v * 0.5 + 1), c.sum()), x, ks),
        some(5),
        np.stack([TWENTY, -TWENTY]),
    ),
    "applied_twice": (lambda x, k: x.at[k].apply(lambda v: 2 * v + 1), some(5), MANY),
    "clipped": (lambda x, k: x.at[k].apply(lambda v: 2 * v + 1, mode="clip"), some(5), MANY),
    "dropped": (lambda x, k: x.at[k].apply(lambda v: 2 * v + 1, mode="drop"), some(5), MANY),
    "promised": (lambda x, k: x.at[k].apply(jnp.sin, mode="promise_in_bounds"), some(5), MANY[:3]),
    "batch_of_indices": (jax.vmap(lambda x, k: x.at[k].apply(jnp.sin), (None, 0)), some(5), TWICE),
    "batch_of_both": (jax.vmap(lambda x, k: x.at[k].apply(jnp.sin)), some(2, 5), TWICE),
    "whole_numbers": (lambda x, k: x.at[k].apply(lambda v: v // 2 + 7), whole(*range(8)), MANY),
    "a_number": (lambda x, k: x.at[k].apply(lambda v: 7.0), some(5), MANY),
    "scanned": (
        lambda x, ks: jax.lax.scan(lambda c, k: (c.at[k].apply(lambda v: v * 2 + 1), c.sum()), x, ks),
        some(5),
        TWICE,
    ),
    "repeated": (
        lambda x, n: jax.lax.fori_loop(0, n, lambda i, c: c.at[i].apply(jnp.sin), x),
        some(5),
        whole(3)[0],
    ),
    "gradient_of_others": (jax.grad(lambda w, x, k: (x.at[k].apply(jnp.sin) * w).sum()), some(5), some(5), MANY),
}


def numbers(*dims: Any, **more: Any) -> Any:
    return jax.lax.ScatterDimensionNumbers(*dims, **more)


ROWS, INSIDE = numbers((1,), (0,), (0,)), numbers((1,), (0,), (1, 0))  # windows at the start of rows, or anywhere
WRITTEN = [jax.lax.scatter, jax.lax.scatter_add, jax.lax.scatter_sub]
WRITTEN += [jax.lax.scatter_mul, jax.lax.scatter_min, jax.lax.scatter_max]


@pytest.mark.parametrize("name", SINES)
def test_scatter_with_an_update_function(name: str) -> None:
    """It was taken for a plain set of zeros."""
    function, *args = SINES[name]
    program = j2t.transpile(function, *args)
    assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
    for got, other in zip(*map(jax.tree.leaves, (program(*args), jax.jit(function)(*args))), strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [jnp.bfloat16, np.float16, np.float64, np.int8, np.uint32, np.int64])
def test_scatter_with_an_update_function_of_every_dtype(kind: Any) -> None:
    with jax.enable_x64(True):
        x = (some(8) * 10).astype(np.int8).astype(kind)
        for mode in ("clip", "drop"):
            function = functools.partial(lambda x, k, mode: x.at[k].apply(lambda v: v * 3 - 1, mode=mode), mode=mode)
            program = j2t.transpile(function, x, MANY)
            assert not program.leftovers
            np.testing.assert_array_equal(program(x, MANY), jax.jit(function)(x, MANY))


def test_a_function_at_too_many_places_stays() -> None:
    function = lambda x, k: x.at[k].apply(lambda v: 2 * v + 1)  # noqa: E731
    args = some(5), np.arange(1025) % 4
    program = j2t.transpile(function, *args)
    assert [left.why for left in program.leftovers] == [
        "it applies a function at more than 1024 indices that may be alike"
    ]
    np.testing.assert_allclose(program(*args), jax.jit(function)(*args), rtol=1e-6)


def test_a_function_of_the_old_value_and_its_update() -> None:
    """In the order of the indices."""
    function = jax.make_jaxpr(lambda old, new: old * 2 - new)(np.float32(0), np.float32(0)).jaxpr
    how = {"update_jaxpr": function, "update_consts": (), "dimension_numbers": numbers((), (0,), (0,))}
    how |= {"indices_are_sorted": False, "unique_indices": False, "mode": jax.lax.GatherScatterMode.FILL_OR_DROP}

    def scatter(x: Any, k: Any, v: Any) -> Any:
        return jax.extend.core.primitives.scatter_p.bind(x, k, v, **how)

    args = some(8), MANY[:, None], some(5)
    program = j2t.transpile(scatter, *args)
    assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
    np.testing.assert_allclose(program(*args), jax.jit(scatter)(*args), rtol=1e-5)


@pytest.mark.parametrize("write", WRITTEN)
@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
def test_windows_smaller_than_the_operand(write: Callable[..., Any], mode: str) -> None:
    """They were a TypeError: windows of 3 into rows of 5."""
    rows = whole([1], [-1], [9], [1]) if mode != "promise_in_bounds" else whole([1], [0], [3], [1])
    anywhere = whole([1, 1], [2, 1], [9, 2], [0, 3]) if mode != "promise_in_bounds" else whole([1, 1], [2, 1], [0, 3])
    for dims, indices in ((ROWS, rows), (INSIDE, anywhere)):
        function = functools.partial(write, dimension_numbers=dims, mode=mode)
        args = some(4, 5), indices, some(len(indices), 3)
        program = j2t.transpile(function, *args)
        assert (len(program.kernels), program.leftovers) == (1, ()), program.explain()
        np.testing.assert_allclose(program(*args), jax.jit(function)(*args), rtol=1e-5, atol=1e-6)


def test_a_single_place_of_a_dimension_that_no_index_names() -> None:
    function = functools.partial(jax.lax.scatter_add, dimension_numbers=numbers((), (0, 1), (1,)))
    args = some(4, 5), whole([1], [1], [3]), some(3)
    np.testing.assert_allclose(j2t.transpile(function, *args)(*args), jax.jit(function)(*args), rtol=1e-6)


def test_zeros_stay_zeros() -> None:
    """They became -0.0 where nothing was added."""
    for function in (
        lambda v, k: jnp.zeros(5, np.float32).at[k].add(v),
        lambda v, k: jnp.zeros(5, np.float32).at[1].add(v),
        lambda v, k: jnp.zeros(5, np.float32).at[jnp.stack([k, k + 1])].add(v),
    ):
        args = np.float32(1), whole(2)[0]
        got, want = j2t.transpile(function, *args)(*args), jax.jit(function)(*args)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


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
    assert same_bits(outputs(lower_places(closed), (x, 1))[0], outputs(closed, (x, 1))[0])


def test_what_takes_too_many_comparisons_stays() -> None:
    args = some(10000), some(10000), np.arange(10000)
    assert "scatter-add" in primitives_of(lower_places(traced(lambda x, v, k: x.at[k].add(v), *args)))
    for write in ("add", "set"):
        program = j2t.transpile(lambda x, v, k, write=write: getattr(x.at[k], write)(v), *args)
        assert [left.why for left in program.leftovers] == [
            "each of 10,000 elements would look through 10,000 updates, which takes longer than XLA"
        ]


def test_programs_without_places_are_returned_as_they_are() -> None:
    before = traced(lambda x: x + 1, some(3))
    assert lower_places(before) is before


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
