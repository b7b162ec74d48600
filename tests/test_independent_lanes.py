"""Loops of many lanes that have nothing to do with each other: programs share them out, whatever else the loop does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.normalize.loops.test_lanes import saved_at_times, written_where_due

LANES = 300  # more than one program has anyway


def normal(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def counted(x: Any) -> Any:
    """How long the loop takes has nothing to do with its lanes, and is a result as well."""

    def step(state: Any) -> Any:
        t, count, x = state
        return t + 0.3, count + 1, x + 0.3 * jnp.sin(x)

    return lax.while_loop(lambda state: state[0] < 1, step, (0.0, 0, x))


def saved_together(x: Any) -> Any:
    """All lanes write at one place, which the loop computes."""

    def step(state: Any) -> Any:
        count, place, x, saved = state
        saved = jax.vmap(lambda row, new: row.at[place].set(new))(saved, x)
        return count + 1, (place + 2) % 5, 0.5 * x + jnp.cos(x), saved

    return lax.while_loop(lambda state: state[0] < 4, step, (0, 0, x, jnp.zeros((x.size, 5))))[1:]


def counted_for_any(x: Any) -> Any:
    """As long as any lane wants to: nobody knows of a part of the lanes how many steps that are."""

    def step(state: Any) -> Any:
        count, x = state
        return count + 1, x * 0.5

    return lax.while_loop(lambda state: jnp.any(state[1] > 0.1), step, (0, x))


def resampled(scale: Any, x: Any, seen: Any) -> Any:
    """Rows of particles, drawn anew in each step: where each comes from, a loop in the step looks up."""

    def row(scale: Any, x: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            x = 0.9 * x + scale * y
            weight = jax.nn.softmax(x * y)
            marks = (jnp.arange(x.size) + 0.5) / x.size
            return x[jnp.searchsorted(jnp.cumsum(weight), marks)], (weight * x).sum()

        return lax.scan(step, x, seen)[1]

    return jax.vmap(row)(scale, x)


def summed_in_each_step(x: Any, weights: Any) -> Any:
    """What lanes add up to, and the largest of them, is known of each step; no step waits for that."""

    def step(x: Any, weight: Any) -> Any:
        x = jnp.sin(x * weight) + x
        return x, ((x * weight).sum(), x.max())

    return lax.scan(step, x, weights)


def polynomial(coefficients: Any, scale: Any, x: Any) -> Any:
    """All lanes read the coefficients, one in each step, and the scale, in all steps."""
    return lax.scan(lambda value, a: (jnp.tanh(value * x * scale) + a, None), jnp.zeros_like(x), coefficients)[0]


def searched(x: Any, drawn: Any) -> Any:
    """A table for each lane, which is read and written as libraries do: at `arange(lanes)` and a computed place."""
    lanes = jnp.arange(len(x))

    def step(x: Any, i: Any) -> Any:
        place = (i + x[:, 0].astype(jnp.int32)) % x.shape[1]
        found = x[lanes, place]
        return x.at[lanes, (place + 1) % x.shape[1]].set(jnp.sin(found) + 1), found

    return lax.scan(step, x, drawn)


def begun_alike(x: Any, parts: Any) -> Any:
    """What all lanes begin with comes from running sums of a few numbers, which are the same for all."""
    first = jnp.cumsum(parts)[2]
    return lax.scan(lambda x, part: (jnp.sin(x * part + first), None), x, parts)[0]


def of_their_sum(fn: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """What the gradient of the sum of all results is."""
    return jax.grad(lambda *args: sum(result.sum() for result in jax.tree.leaves(fn(*args))), argnums)


APART = [counted, saved_together, saved_at_times, written_where_due]


@pytest.mark.parametrize("fn", APART, ids=lambda fn: fn.__name__)
def test_programs_share_out_the_lanes(fn: Callable[..., Any]) -> None:
    program = j2t.transpile(fn, jax.ShapeDtypeStruct((4096,), np.float32))
    assert not program.leftovers
    assert all(np.prod(kernel.grid) > 1 for kernel in program.kernels)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("fn", [counted, saved_together, counted_for_any, saved_at_times], ids=lambda fn: fn.__name__)
def test_values(fn: Callable[..., Any], backend: Any) -> None:
    x = np.abs(normal(LANES))
    for mine, theirs in zip(j2t.fuse(fn, backend=backend)(x), jax.jit(fn)(x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_what_the_loop_counts_is_stored_once() -> None:
    (kernel,) = j2t.transpile(counted, normal(LANES)).kernels
    assert kernel.grid[0] > 1
    assert kernel.source.count("mask=tl.program_id(0) == 0)") == 2


def test_who_waits_for_any_lane_has_them_all() -> None:
    (kernel,) = j2t.transpile(counted_for_any, normal(LANES)).kernels
    assert kernel.grid[0] == 1


def test_what_a_step_looks_up_is_kept_for_each_lane() -> None:
    """Its gradient reads at two places what a loop in the step has found; no other lane reads any of that."""
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((256,), (256, 128), (32,))]
    program = j2t.transpile(of_their_sum(resampled), *shapes)
    assert not program.leftovers
    assert all(np.prod(kernel.grid) >= 64 for kernel in program.kernels)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_the_gradient_of_what_is_looked_up(backend: Any) -> None:
    args = np.abs(normal(3)), normal(3, 8), normal(5)
    expected = jax.jit(of_their_sum(resampled))(*args)
    for gradient in (
        of_their_sum(j2t.fuse(resampled, backend=backend)),
        j2t.fuse(of_their_sum(resampled), backend=backend),
    ):
        np.testing.assert_allclose(gradient(*args), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (summed_in_each_step, ((1 << 20,), (32,))),
        (lambda *args: summed_in_each_step(*args)[1], ((1 << 20,), (32,))),
        (of_their_sum(polynomial, (0, 1)), ((32,), (), (1 << 20,))),
    ],
    ids=["with what is carried", "sums alone", "gradient"],
)
def test_programs_share_out_lanes_that_meet_in_sums_only(fn: Any, shapes: Any) -> None:
    program = j2t.transpile(fn, *(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes))
    loops = [kernel for kernel in program.kernels if any(axis.role.name == "LOOP" for axis in kernel.axes)]
    assert not program.leftovers
    assert loops and all(np.prod(kernel.grid) >= 512 for kernel in loops[:1])


@pytest.mark.parametrize("lanes", [2500, 4096])  # of one of which programs have equal parts
@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_sums_of_many_lanes(backend: Any, lanes: int) -> None:
    args = normal(lanes), normal(3)
    assert len(j2t.transpile(summed_in_each_step, *args).kernels) > 1
    found = jax.tree.leaves(j2t.fuse(summed_in_each_step, backend=backend)(*args))
    for mine, theirs in zip(found, jax.tree.leaves(jax.jit(summed_in_each_step)(*args)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("lanes", [2500, 4096])
@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_gradients_of_what_many_lanes_read(backend: Any, lanes: int) -> None:
    args = normal(3), normal(1)[0], normal(lanes)
    expected = jax.jit(of_their_sum(polynomial, (0, 1, 2)))(*args)
    fused = j2t.fuse(polynomial, backend=backend)
    for gradient in (of_their_sum(fused, (0, 1, 2)), j2t.fuse(of_their_sum(polynomial, (0, 1, 2)), backend=backend)):
        for mine, theirs in zip(gradient(*args), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-3)


def test_each_lane_has_a_row_of_its_own() -> None:
    program = j2t.transpile(
        searched, jax.ShapeDtypeStruct((4096, 30), np.float32), jax.ShapeDtypeStruct((9, 4096), np.int32)
    )
    (kernel,) = program.kernels
    assert not program.leftovers and np.prod(kernel.grid) > 64


def test_every_program_makes_running_sums_that_are_the_same_for_all_lanes() -> None:
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((100_000,), (9,))]
    (kernel,) = j2t.transpile(begun_alike, *shapes).kernels
    assert "associative_scan" in kernel.source or "cumsum" in kernel.source
    assert np.prod(kernel.grid) > 64


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_values_of_rows_and_of_running_sums(backend: Any) -> None:
    drawn = np.random.default_rng(3).integers(0, 9, (4, 5)).astype(np.int32)
    for fn, args in ((searched, (normal(5, 7), drawn)), (begun_alike, (normal(600), normal(9)))):
        for mine, theirs in zip(
            jax.tree.leaves(j2t.fuse(fn, backend=backend)(*args)), jax.tree.leaves(jax.jit(fn)(*args)), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_what_is_summed_is_not_written() -> None:
    """Programs write what their lanes add up to; so one kernel has the loop, and a small one the rest."""
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1 << 20,), (32,))]
    for fn in (summed_in_each_step, lambda *args: summed_in_each_step(*args)[1]):
        loop, rest = j2t.transpile(fn, *shapes).kernels
        assert "out1_parts float32[4096,32]" in loop.source or "out0_parts float32[4096,32]" in loop.source
        assert "float32[32,1048576]" not in loop.source + rest.source
    gradient = j2t.transpile(
        of_their_sum(polynomial, (0, 1)), *(shapes[1], jax.ShapeDtypeStruct((), np.float32), shapes[0])
    )
    assert [kernel.source.count("tl.store(") for kernel in gradient.kernels[:2]] == [1, 2]
    assert len(gradient.kernels) == 4


@pytest.mark.parametrize(
    ("other", "is_written"),
    [(lambda seen: seen, True), (lambda seen: seen.argmax(1), False)],
    ids=["the caller", "a place, in parts as well"],
)
def test_what_is_read_by_others_as_well_is_written_all_the_same(other: Any, is_written: bool) -> None:
    def function(x: Any, weights: Any) -> Any:
        _, seen = lax.scan(lambda x, weight: (jnp.sin(x * weight), x), x, weights)
        return seen.sum(1), other(seen)

    args = normal(4096), normal(5)
    assert ("float32[5,4096]" in j2t.transpile(function, *args).kernels[0].source) is is_written
    for mine, theirs in zip(j2t.fuse(function, backend="interpret")(*args), jax.jit(function)(*args), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
