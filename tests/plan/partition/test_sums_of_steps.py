"""Sums that steps make for others alone, shared out over programs."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.loop_programs.state_spaces import selective_scan

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.float32(one), np.float32(other), rtol=tolerance, atol=tolerance)


def programs_of(function: Any, *args: Any) -> list[int]:
    """How many programs each kernel with a loop has."""
    made = j2t.transpile(function, *args)
    assert not made.leftovers
    return [math.prod(kernel.grid) for kernel in made.kernels if "t: loop" in kernel.source]


def channels(batch: int, steps: int, channels: int, state: int) -> tuple[Any, ...]:
    a_sequence, of_state = (batch, steps, channels), (batch, steps, state)
    return (
        normal(*a_sequence),
        abs(normal(*a_sequence)),
        -abs(normal(channels, state)),
        normal(*of_state),
        normal(*of_state),
    )


def gradients(*args: Any) -> Any:
    return jax.grad(lambda *args: jnp.sum(selective_scan(*args) ** 2), (0, 1, 2, 3, 4))(*args)


def pulled_back(*args: Any) -> Any:
    out, pull = jax.vjp(selective_scan, *args)
    return out, pull(jnp.ones_like(out))


@pytest.mark.parametrize("function", [gradients, pulled_back])
def test_all_kernels_of_a_selective_scans_gradient_have_as_many_programs_as_there_are_processors(function: Any) -> None:
    shapes = [(8, 2048, 1024), (8, 2048, 1024), (1024, 16), (8, 2048, 16), (8, 2048, 16)]
    assert min(programs_of(function, *(jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes))) >= 128


def test_what_is_written_in_chunks_keeps_its_name() -> None:
    source = j2t.transpile(gradients, *channels(2, 5, 256, 4)).source
    assert "out0_ptr" not in source and "tl.store(d_args_0_ptr" in source


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_a_selective_scans_gradient_is_right_in_parts(backend: str) -> None:
    args = channels(2, 5, 256, 4)
    found, expected = j2t.fuse(gradients, backend=backend)(*args), jax.jit(gradients)(*args)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4 * np.abs(other).max())


def step_sums(reduce: Any) -> Any:
    def program(start: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = c * 0.5 + x
            return c, (reduce(c * x), c)

        return lax.scan(step, start, xs)

    return program


@pytest.mark.parametrize(
    "reduce",
    [
        lambda c: c.sum(-1),
        lambda c: c.max(-1),
        lambda c: (c > 0).any(-1),
        lambda c: c @ jnp.arange(512.0) / 512,
        lambda c: c.astype(jnp.bfloat16).sum(-1),
        lambda c: jnp.sqrt(1 + jnp.sum(c * c, -1)) - c.mean(-1),
    ],
)
def test_what_steps_reduce_lanes_to(reduce: Any) -> None:
    program, args = step_sums(reduce), (normal(4, 512), normal(6, 4, 512))
    assert min(programs_of(program, *args)) >= 32
    found, expected = j2t.fuse(program, backend="interpret")(*args), jax.jit(program)(*args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.float32(a), np.float32(b), rtol=2e-2, atol=1e-2), found, expected
    )


def test_lanes_that_meet_in_what_is_carried_stay_in_one_program() -> None:
    def program(start: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = c * 0.5 + x
            return c - c.mean(-1, keepdims=True), c.sum(-1)

        return lax.scan(step, start, xs)

    args = normal(4, 512), normal(6, 4, 512)
    assert programs_of(program, *args) == [4]
    found, expected = j2t.fuse(program, backend="interpret")(*args), jax.jit(program)(*args)
    assert_close(found, expected, 1e-4)


def test_what_another_kernel_reads_of_the_loop_is_written_in_the_same_chunks() -> None:
    def program(start: Any, xs: Any) -> Any:
        last, sums = lax.scan(lambda c, x: (c * 0.5 + x, jnp.sum(c * x, -1)), start, xs)
        return jnp.sort(last[:, ::2], -1) + jnp.sum(last, 0)[:256], sums

    args = normal(4, 512), normal(6, 4, 512)
    assert max(programs_of(program, *args)) >= 32
    found, expected = j2t.fuse(program, backend="interpret")(*args), jax.jit(program)(*args)
    assert_close(found, expected, 1e-4)
