"""Tiles that are read at other places of their own lanes: in loops over grids, of one warp and of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from jaxpr2triton.launch.cycles import sectors
from jaxpr2triton.launch.cycles.sass import instructions
from tests.policy.programs import life

RNG = np.random.default_rng()


def repeated(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=3)[0]


def ring(c: Any) -> Any:
    return c + 0.1 * (jnp.roll(c, 1) + jnp.roll(c, -1) - 2 * c)


def heat(c: Any) -> Any:
    return c + 0.1 * (sum(jnp.roll(c, by, axis) for by in (-1, 1) for axis in (0, 1)) - 4 * c)


def edges(c: Any) -> Any:
    p = jnp.pad(c, 1, mode="edge")
    return 0.9 * jnp.maximum(jnp.maximum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.minimum(p[1:-1, :-2], p[1:-1, 2:]))


def mirrors(c: Any) -> Any:
    p = jnp.pad(c, 1, mode="reflect")
    return 0.3 * p[:-2, 1:-1] - 0.2 * p[1:-1, :-2] + 0.1 * p[2:, 2:]


def zeros(c: Any) -> Any:
    p = jnp.pad(c, 1)
    return 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) + 0.1 * c


def of_all_kinds(c: Any) -> Any:
    return 0.3 * c[::-1] + 0.2 * jnp.roll(c, 2, 1) + 0.1 * jnp.sin(c[:, ::-1]) * jnp.roll(c, -3, 0)


def stages(c: Any) -> Any:
    """Heun's method: the second stage reads neighbours of what the first one made."""
    first = heat(c)
    return 0.5 * (c + heat(first)) + 0.1 * jnp.roll(first, 1, 0)


def wave(c: Any) -> Any:
    now, before = c
    return 2 * now - before + 0.1 * (jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now), now


def largest_change(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Until no element changes by much, the largest change being a number or none."""

    def function(x: Any) -> Any:
        def unfinished(state: Any) -> Any:
            return (state[1] > 0.02) & (state[2] < 9)

        def go_on(state: Any) -> Any:
            new = step(state[0])
            return new, jnp.max(jnp.abs(new - state[0])), state[2] + 1

        return lax.while_loop(unfinished, go_on, (x, jnp.asarray(jnp.inf, x.dtype), 0))

    return function


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return jnp.asarray(RNG.normal(size=shape), dtype)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "ring": (ring, normal(70)),
    "rings": (jax.vmap(ring), normal(3, 70)),
    "ring of two": (ring, normal(2)),
    "heat": (heat, normal(12, 13)),
    "heats": (jax.vmap(heat), normal(2, 12, 13)),
    "edges": (edges, normal(17, 21)),
    "edges of one row": (edges, normal(1, 40)),
    "edges in 16 bits": (edges, normal(9, 30, dtype=jnp.bfloat16)),
    "mirrors": (mirrors, normal(9, 30)),
    "zeros": (zeros, normal(15, 20)),
    "life": (life, RNG.random((17, 19)) > 0.6),
    "all kinds": (of_all_kinds, normal(16, 24)),
    "no numbers": (edges, jnp.where(normal(9, 40) > 1.2, jnp.inf, jnp.where(normal(9, 40) > 1.5, jnp.nan, 1.0))),
    "pieces of a ring": (ring, normal(128)),
    "pieces of rings": (jax.vmap(ring), normal(3, 128)),
    "pieces": (heat, normal(32, 36)),
    "pieces of stages": (stages, normal(32, 20)),
    "pieces of edges": (edges, normal(50, 30)),
    "pieces of mirrors": (mirrors, normal(28, 32)),
    "pieces of zeros": (zeros, normal(36, 32)),
    "pieces of life": (life, RNG.random((32, 32)) > 0.6),
    "pieces of all kinds": (of_all_kinds, normal(32, 32)),
    "pieces in 16 bits": (edges, normal(32, 32, dtype=jnp.bfloat16)),
    "pieces of no numbers": (edges, jnp.where(normal(32, 32) > 1.5, jnp.nan, 1.0)),
    "bytes": (lambda c: jnp.roll(c, 1, 0) + jnp.roll(c, -1, 1), RNG.integers(-128, 128, (20, 30), np.int8)),
}


@pytest.mark.parametrize("name", CASES)
def test_lanes_that_are_read(name: str) -> None:
    step, x = CASES[name]
    function = repeated(step)
    found, wanted = j2t.fuse(function, backend="interpret", strict=True)(x), jax.jit(function)(x)
    rough = 2e-2 if x.dtype == jnp.bfloat16 else 1e-5
    np.testing.assert_allclose(*(np.asarray(each, np.float64) for each in (found, wanted)), rtol=rough, atol=rough)


def test_a_value_before_the_one_that_is_there() -> None:
    function, x = lambda c: lax.scan(lambda c, _: (wave(c), None), c, None, length=4)[0], (normal(256), normal(256))
    for found, wanted in zip(j2t.fuse(function, backend="interpret", strict=True)(x), jax.jit(function)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("x", [normal(32, 32), normal(17, 40), jnp.where(normal(32, 32) > 2.5, jnp.nan, 0.0)])
def test_the_largest_change_is_that_of_all_lanes(x: Any, backend: Any) -> None:
    function = largest_change(edges)
    for found, wanted in zip(j2t.fuse(function, backend=backend, strict=True)(x), jax.jit(function)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rings", "heat", "edges", "mirrors", "all kinds", "pieces", "pieces of edges"])
def test_gradients(name: str) -> None:
    step, x = CASES[name]

    def loss(x: Any) -> Any:
        return jnp.sin(repeated(step)(x)).sum()

    found = jax.grad(j2t.fuse(loss, backend="interpret", strict=True))(x)
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [ring, heat])
def test_a_gradient_reads_lanes_as_the_step_does(step: Callable[[Any], Any]) -> None:
    x = normal(33, 31) if step is heat else normal(300)
    made = j2t.transpile(jax.grad(lambda x: jnp.sin(repeated(step)(x)).sum()), x, for_target="sm_90")
    (kernel,) = made.kernels
    assert kernel.source.count("tl.gather(") == 2 and "tl.sum(" not in kernel.source


@pytest.mark.parametrize("name", ["heat", "edges", "life", "pieces", "pieces of stages", "pieces of life"])
def test_no_lane_reads_what_another_has_not_written(name: str) -> None:
    step, x = CASES[name]
    found = j2t.fuse(repeated(step), backend="machine", strict=True)(x)
    np.testing.assert_allclose(found, jax.jit(repeated(step))(x), rtol=1e-5, atol=1e-5)


def source_of(step: Callable[[Any], Any], x: Any) -> tuple[str, int]:
    (kernel,) = j2t.transpile(repeated(step), x, for_target="sm_90").kernels
    return kernel.source, kernel.num_warps


@pytest.mark.parametrize(("step", "neighbours"), [(heat, 4), (edges, 4), (life, 8)])
def test_a_tile_is_in_shared_memory_once(step: Callable[[Any], Any], neighbours: int) -> None:
    source, warps = source_of(step, jax.ShapeDtypeStruct((31, 33), bool if step is life else np.float32))
    assert warps > 1 and source.count("tl.gather(") == 1 and source.count("tl.join(") == neighbours - 1
    assert "tl.sum(" not in source  # of an element for all lanes at the edge


@pytest.mark.parametrize("step", [heat, edges])
def test_pieces_are_in_shared_memory_once(step: Callable[[Any], Any]) -> None:
    (kernel,) = j2t.transpile(repeated(step), jax.ShapeDtypeStruct((32, 32), np.float32), for_target="sm_90").kernels
    assert kernel.num_warps > 1 and [str(each) for each in kernel.axes if each.name.startswith("d")] == [
        "d0u: unroll 2",
        "d1u: unroll 2",
    ]
    assert kernel.source.count("tl.gather(") == 1
    assert kernel.source.count("tl.join(") == 3 + 7  # four pieces, and eight that are read of other lanes


@pytest.mark.parametrize(("step", "shape"), [(heat, (32, 32)), (heat, (64, 64)), (edges, (50, 50)), (ring, (4096,))])
def test_lanes_that_exchange_pieces_are_in_banks_of_their_own(step: Callable[[Any], Any], shape: Any) -> None:
    (kernel,) = j2t.transpile(repeated(step), jax.ShapeDtypeStruct(shape, np.float32), for_target="sm_90").kernels
    assert kernel.num_warps > 1 and "u: unroll" in " ".join(map(str, kernel.axes))
    lanes, known, seen = DEFAULT_TARGET.warp_size, dict[str, Any](), 0
    code = machine_code(str(compile_kernel(kernel, DEFAULT_TARGET).code), DEFAULT_TARGET.arch)[0]
    for each in instructions(code):
        place = sectors._place(each, known, lanes) if each.kind in ("LDS", "STS") else None
        if place is not None:
            words = np.unique(np.concatenate([place // 4 + n for n in range(each.width // 4)]))
            assert np.bincount(words % 32).max() <= each.width // 4
            seen += 1
        sectors._follow(each, known, lanes)
    assert seen > 3


def test_a_step_whose_values_are_in_memory_is_in_no_pieces() -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda c, _: (heat(c), c), x, None, length=3)[1]

    (kernel,) = j2t.transpile(function, jax.ShapeDtypeStruct((32, 32), np.float32), for_target="sm_90").kernels
    assert "unroll" not in kernel.source


def test_one_warp_reads_each_place_by_itself() -> None:
    source, warps = source_of(ring, jax.ShapeDtypeStruct((32,), np.float32))
    assert warps == 1 and source.count("tl.gather(") == 2 and "tl.join(" not in source
    assert "tl.where(col == 0, 31, lanes)" in source
