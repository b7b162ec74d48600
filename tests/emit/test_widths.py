"""No part of an offset leaves the bits in which it is computed, however large arrays are.

Kernels of arrays that no computer here holds are planned and checked, and not run. Those of small ones are run as if a
word had few bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.emit import text, widths
from jaxpr2triton.emit.sound import check_offsets
from jaxpr2triton.emit.widths import Numbers, Widths, fits
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.tree import as_expr
from jaxpr2triton.launch.compile.compile import compile_kernel
from tests.emit.reading import body_of

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


def of(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def table(t: Any, i: Any) -> Any:
    return t[i]


def states(h: Any, xs: Any, reverse: bool = False) -> Any:
    return lax.scan(lambda h, x: ((jnp.sin(h) + x),) * 2, h, xs, reverse=reverse)[1]


def last(h: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h) + x, None), h, xs)[0]


def slopes(h: Any, xs: Any) -> Any:
    return jax.grad(lambda h, xs: states(h, xs).sum(), (0, 1))(h, xs)


def slice_of(x: Any, i: Any) -> Any:
    return 2 * lax.dynamic_slice(x, (i, 0), (16, x.shape[1]))


def with_slice(x: Any, u: Any, i: Any) -> Any:
    return 2 * lax.dynamic_update_slice(x, u, (i, 0))


def row_of(x: Any, t: Any, i: Any) -> Any:
    """A row of a scan's array that is found by a number which is known to be small."""
    return lax.scan(lambda h, j: (jnp.sin(h) + t[j % 7 + 2**21], h), x, i)[1]


@dataclass(frozen=True)
class Case:
    fn: Callable[..., Any]
    large: tuple[Any, ...]  # 2 ** 31 elements and more
    small: tuple[Any, ...]  # the same in small
    contractions: str = "auto"


I32 = np.int32
TALL, WIDE = of(2_200_000, 1000), of(37, 12)
CASES = {
    "gather": Case(table, (TALL, of(4, dtype=I32)), (WIDE, of(4, dtype=I32))),
    "gather of a known range": Case(
        row_of, (of(1024), of(2**21 + 7, 1024), of(9, dtype=I32)), (of(5), of(2**21 + 7, 5), of(3, dtype=I32))
    ),
    "scatter": Case(
        lambda t, i, v: t.at[i].set(v),
        (TALL, of(1, dtype=I32), of(1, 1000)),
        (WIDE, of(1, dtype=I32), of(1, 12)),
    ),
    "scan": Case(states, (of(1 << 20), of(4096, 1 << 20)), (of(8), of(33, 8))),
    "scan of which the end is read": Case(last, (of(1 << 25), of(70, 1 << 25)), (of(16), of(7, 16))),
    "scan backwards": Case(lambda h, xs: states(h, xs, True), (of(1 << 20), of(4096, 1 << 20)), (of(8), of(33, 8))),
    "scan of many steps that reads ahead": Case(states, (of(64), of(2**25 + 5, 64)), (of(8), of(37, 8))),
    "scan backwards that reads ahead": Case(
        lambda h, xs: states(h, xs, True), (of(64), of(2**25 + 5, 64)), (of(8), of(37, 8))
    ),
    "gradient of a scan": Case(slopes, (of(1 << 20), of(4096, 1 << 20)), (of(8), of(33, 8))),
    "gradient of a gather": Case(
        jax.grad(lambda t, i: jnp.sin(table(t, i)).sum()), (TALL, of(dtype=I32)), (WIDE, of(dtype=I32))
    ),
    "contraction": Case(
        lambda a, b: a @ b, (of(1 << 20, 4096), of(4096, 64)), (of(48, 80), of(80, 32)), contractions="triton"
    ),
    "window": Case(
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 3), (1, 1), "SAME"), (of(2**16, 2**15 + 1),), (of(9, 17),)
    ),
    "sort": Case(lambda x: jnp.sort(x, 1), (of(1 << 26, 64),), (of(9, 16),)),
    "running sum": Case(lambda x: jnp.cumsum(x, 1), (of(1 << 22, 1024),), (of(9, 50),)),
    "split sum": Case(lambda x: x.sum(0), (of(1 << 27, 64),), (of(1 << 15, 3),)),
    "sum of all": Case(lambda x: x.sum(), (of(1 << 32),), (of(1 << 17),)),
    "place of the largest": Case(lambda x: x.argmax(1), (of(46341, 46342),), (of(9, 50),)),
    "mask of a ragged end": Case(lambda x: (2 * x).sum(1), (of(46341, 46342),), (of(9, 50),)),
    "dynamic slice": Case(slice_of, (TALL, of(dtype=I32)), (WIDE, of(dtype=I32))),
    "dynamic update": Case(with_slice, (TALL, of(16, 1000), of(dtype=I32)), (WIDE, of(16, 12), of(dtype=I32))),
    "blocks of programs": Case(lambda x: 2 * x[::-1], (of(2**31 + 5),), (of(2000),)),
    "transposed": Case(lambda x: 2 * x.T, (of(2**16, 2**16),), (of(70, 90),)),
    "edges": Case(lambda x: jnp.pad(2 * x, ((3, 4), (5, 6))), (of(46341, 46342),), (of(9, 50),)),
    "pieces": Case(lambda x, y: jnp.concatenate([x, y]) * 2, (of(2**30, 2),) * 2, (of(130, 2),) * 2),
}
cases = pytest.mark.parametrize("name", CASES)


def planned(case: Case) -> list[Any]:
    return list(j2t.transpile(case.fn, *case.large, contractions=case.contractions, strict=True).kernels)


@cases
def test_offsets_of_large_arrays_stay_in_their_bits(name: str) -> None:
    """Every kernel is checked as it is written."""
    assert any("tl.int64" in kernel.source for kernel in planned(CASES[name]))


@cases
def test_a_kernel_without_casts_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_constant", as_expr)
    monkeypatch.setattr(Widths, "is_wide", lambda self, axis: False)
    monkeypatch.setattr(Widths, "of", lambda self, index: {atom: self.own(atom) for atom, _ in index.terms})
    with pytest.raises(CompilerBug, match="leaves its bits|may be any number"):
        planned(CASES[name])


def drawn(avals: tuple[Any, ...], rng: np.random.Generator) -> list[Any]:
    numbers = [
        rng.integers(0, 37, each.shape) if each.dtype == I32 else rng.standard_normal(each.shape) for each in avals
    ]
    return [jnp.asarray(number, each.dtype) for number, each in zip(numbers, avals)]


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@cases
def test_casts_change_no_result(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a word had eight bits, so that nearly everything is computed in more."""
    monkeypatch.setattr(widths, "fits", lambda low, high, bits: fits(low, high, 8 if bits == 32 else bits))
    case = CASES[name]
    fused = j2t.fuse(case.fn, backend=backend, contractions=case.contractions)
    arguments = drawn(case.small, np.random.default_rng())
    kernels = j2t.transpile(case.fn, *case.small, contractions=case.contractions).kernels
    assert any("tl.int64" in kernel.source for kernel in kernels)
    for found, expected in zip(*map(jax.tree.leaves, (fused(*arguments), jax.jit(case.fn)(*arguments))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.compile
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", ["gather", "scan backwards that reads ahead", "contraction", "place of the largest"])
def test_kernels_of_large_arrays_compile(name: str, target: str) -> None:
    for kernel in planned(CASES[name]):
        assert compile_kernel(kernel, TARGETS[target]).target == target


@pytest.mark.parametrize("size", [2**31 - 1024, 2**31 - 1, 2**31])
def test_places_of_a_last_block_that_fit_are_left_as_they_are(size: int) -> None:
    (kernel,) = j2t.transpile(lambda x: 2 * x, of(size)).kernels
    assert "int64" not in kernel.source


def test_only_the_part_that_needs_it_has_more_bits() -> None:
    (kernel,) = planned(CASES["gather"])
    assert "t_ptr + tl.cast(place, tl.int64) * 1000 + i % 1000" in kernel.source


NONE, SMALL = Numbers(), Numbers(0, 9, 32)
TEXTS = {  # a kernel's text, what its computed numbers are, and what is wrong with it
    "fits": ("row = tl.program_id(0)\ntl.load(x_ptr + row * 2000)", NONE, ""),
    "product": ("row = tl.program_id(0)\ntl.load(x_ptr + row * 3000000)", NONE, "row * 3000000 leaves its bits"),
    "cast": ("row = tl.program_id(0)\ntl.load(x_ptr + row.to(tl.int64) * 3000000)", NONE, ""),
    "cast too late": (
        "row = tl.program_id(0)\ntl.load(x_ptr + (row * 3000000).to(tl.int64))",
        NONE,
        "row * 3000000 leaves its bits",
    ),
    "sum": ("row = tl.program_id(0)\ntl.load(x_ptr + (row * 2000000 + row * 2000000))", NONE, "leaves its bits"),
    "sum of a pointer": ("row = tl.program_id(0)\ntl.load(x_ptr + row * 2000000 + row * 2000000)", NONE, ""),
    "before a quotient": ("row = tl.program_id(0)\ntl.load(x_ptr + row * 3000000 // 1000000)", NONE, "leaves its bits"),
    "below zero": ("row = tl.program_id(0)\ntl.load(x_ptr + (5 - row * 3000000))", NONE, "leaves its bits"),
    "number of the text": ("row = tl.program_id(0)\ntl.load(x_ptr + (row + 3000000000))", NONE, "leaves its bits"),
    "place of a program": (
        "row = tl.program_id(0) * 3000000 + tl.arange(0, 64)\ntl.store(x_ptr + row, 0)",
        NONE,
        "row may be any number",
    ),
    "step": ("for t in range(4096):\n    tl.load(x_ptr + t * 1048576)", NONE, "t * 1048576 leaves its bits"),
    "step of many": ("for t in range(3000000000):\n    tl.load(x_ptr + t * 2)", NONE, ""),
    "step backwards": (
        "for t_start in range(4096):\n    t = 4095 - t_start\n    tl.load(x_ptr + t * 1048576)",
        NONE,
        "t * 1048576 leaves its bits",
    ),
    "step ahead": (
        "for t in range(0, 2047):\n    x = tl.load(x_ptr + (t + 2) * 1048576, mask=t < 2045)",
        NONE,
        "leaves its bits",
    ),
    "step in the text": (
        "for late in tl.static_range(3):\n    t = tl.full((), 4000 + late, tl.int32)\n    tl.load(x_ptr + t * 1048576)",
        NONE,
        "leaves its bits",
    ),
    "carried": (
        "row = tl.program_id(0)\nfor t in range(3):\n    tl.load(x_ptr + row * 2)\n    row = row * 1000",
        NONE,
        "row may be any number",
    ),
    "either": (
        "i = tl.arange(0, 8)\nif going:\n    i = i * 9\ntl.load(x_ptr + i * 100000000)",
        NONE,
        "leaves its bits",
    ),
    "clamped": (
        "place = tl.minimum(tl.maximum(tl.load(i_ptr), 0), 2199999)\ntl.load(x_ptr + place * 1000)",
        SMALL,
        "place * 1000 leaves its bits",
    ),
    "clamped and cast": (
        "place = tl.minimum(tl.maximum(tl.load(i_ptr), 0), 2199999)\ntl.load(x_ptr + tl.cast(place, tl.int64) * 1000)",
        SMALL,
        "",
    ),
    "computed": ("n = tl.load(i_ptr)\ntl.load(x_ptr + n * 1000)", SMALL, ""),
    "computed, and too large": ("n = tl.load(i_ptr)\ntl.load(x_ptr + n * 300000000)", SMALL, "leaves its bits"),
    "not computed": ("n = tl.load(i_ptr)\ntl.load(x_ptr + n)", NONE, "n may be any number"),
    "mask": ("row = tl.program_id(0)\ntl.load(x_ptr, mask=row * 3000000 < 7)", NONE, "a mask compares row * 3000000"),
    "mask with a name": (
        "row = tl.program_id(0)\ninside = row * 3000000 < 7\ntl.load(x_ptr, mask=inside & (row < 3))",
        NONE,
        "a mask compares row * 3000000",
    ),
    "what a user compares": ("row = tl.program_id(0)\ntl.store(wrong_ptr, 1, mask=row * 3000000 < 7)", NONE, ""),
    "what a user computes": ("row = tl.program_id(0)\nh = row * 3000000\ntl.store(x_ptr + row, h)", NONE, ""),
    "number of the text beside a pointer": ("tl.load(x_ptr - 3000000000)", NONE, "3000000000 leaves its bits"),
    "number with a width": ("tl.load(x_ptr + tl.full((), 3000000000, tl.int64))", NONE, ""),
    "no address": ("tl.load(tl.load(x_ptr))", NONE, "no address"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_wrong_with_a_text(name: str) -> None:
    lines, numbers, wrong = TEXTS[name]
    body = body_of(lines)
    places = frozenset({"row", "t"})
    if not wrong:
        check_offsets(body, (1000, 1, 1), numbers, places)
        return
    with pytest.raises(CompilerBug) as found:
        check_offsets(body, (1000, 1, 1), numbers, places)
    assert wrong in str(found.value)


def test_numbers_without_a_sign_beyond_an_array() -> None:
    """2 ** 31 and more are negative in the type in which places are compared."""
    dims = lax.GatherDimensionNumbers((1,), (0,), (0,))
    x = jnp.asarray(np.random.default_rng().standard_normal((1000, 8)), jnp.float32)
    i = jnp.asarray([3, 999, 1000, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 1], jnp.uint32)

    def fn(x: Any, i: Any) -> Any:
        return lax.gather(x, i[:, None], dims, (1, 8), mode="fill")

    for backend in ("interpret", "machine"):
        np.testing.assert_array_equal(j2t.fuse(fn, backend=backend)(x, i), jax.jit(fn)(x, i))


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_a_dimension_of_more_than_half_of_all_numbers(mode: str) -> None:
    """An index beyond the end of it is outside, though no other array is as large."""
    dims = lax.GatherDimensionNumbers((), (0,), (0,))
    size = 3 * 2**29

    def fn(x: Any, i: Any) -> Any:
        return lax.gather(x, i[:, None], dims, (1,), mode=mode)

    (kernel,) = j2t.transpile(fn, of(size, dtype=np.int8), of(4, dtype=I32)).kernels
    assert (f"< {size}" in kernel.source) == (mode == "fill")
    assert f"{size - 1})" in kernel.source


@pytest.mark.skipif(not DEEP, reason="takes 5 GiB and a minute; with HYPOTHESIS_PROFILE=deep")
def test_a_table_of_more_than_2_to_the_31_elements() -> None:
    rows, columns = 2_200_000, 1000
    found = np.zeros((rows, columns), np.int8)
    found[rows - 1], found[2_150_000], found[2_147_484] = 7, 5, 3
    i = jnp.asarray([rows - 1, 2_150_000, 3, 2_147_484], I32)
    t = jnp.asarray(found)
    del found
    np.testing.assert_array_equal(j2t.fuse(table, backend="interpret")(t, i), jax.jit(table)(t, i))
