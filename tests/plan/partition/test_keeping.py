"""What kernels keep of their loops in buffers of their own: when, how much, and behind which barriers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def leaky(c: Any, x: Any) -> Any:
    return 0.5 * c + x, c


def there_and_back(c: Any, xs: Any) -> Any:
    d, states = lax.scan(leaky, c, xs)
    return lax.scan(leaky, d, jnp.sin(states), reverse=True)[1]


def agrees(fn: Any, *args: Any) -> Any:
    program = j2t.transpile(fn, *args)
    mine, theirs = jax.tree.leaves(program(*args)), jax.tree.leaves(jax.jit(fn)(*args))
    for got, want in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert not program.leftovers
    return program


def test_what_one_loop_makes_for_another_is_kept() -> None:
    (kernel,) = agrees(there_and_back, normal(300), normal(7, 300)).kernels
    assert [(buffer.shape, buffer.dtype) for buffer in kernel.kept] == [((7, 300), np.float32)]
    assert kernel.source.count("tl.debug_barrier()") == 1
    written, read = kernel.source.split("tl.debug_barrier()")
    assert "tl.store(kept_ptr" in written and "tl.load(kept_ptr" in read
    assert kernel.grid[0] > 1, "the lanes are still shared out"


def test_what_is_an_output_too_comes_into_memory_once() -> None:
    def fn(c: Any, xs: Any) -> Any:
        d, states = lax.scan(leaky, c, xs)
        return states, lax.scan(leaky, d, states, reverse=True)[1]

    first, second = agrees(fn, normal(300), normal(7, 300)).kernels
    assert not first.kept and not second.kept


def test_nothing_is_kept_at_the_price_of_programs() -> None:
    """The second loop sums over the lanes of the first one, which one program would have to run all of."""

    def fn(c: Any, xs: Any) -> Any:
        states = lax.scan(leaky, c, xs)[1]
        return lax.scan(lambda total, y: (jnp.tanh(total + y.sum()), total), 0.0, states, reverse=True)[1]

    first, second = agrees(fn, normal(600), normal(7, 600)).kernels
    assert not first.kept and not second.kept
    assert first.grid[0] > 1


def test_only_what_takes_programs_away_comes_into_memory() -> None:
    """Down and up along rows, and then along columns: the programs of either direction keep what they read again."""

    def fn(c: Any, xs: Any) -> Any:
        return there_and_back(c, there_and_back(c, xs).T)

    first, second = agrees(fn, normal(320), normal(320, 320)).kernels
    assert [len(kernel.kept) for kernel in (first, second)] == [1, 1]
    assert first.grid[0] > 1 and second.grid[0] > 1


def test_within_a_loop_writing_waits_for_the_reading_of_the_step_before() -> None:
    def fn(c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            d, states = lax.scan(leaky, c, x)
            return lax.scan(leaky, d, states[::-1])

        return lax.scan(step, c, xs)[0]

    (kernel,) = agrees(fn, normal(3), normal(4, 5, 3)).kernels
    lines = [line.strip() for line in kernel.source.splitlines()]
    store = next(n for n, line in enumerate(lines) if line.startswith("tl.store(kept_ptr"))
    barriers = [n for n, line in enumerate(lines) if line == "tl.debug_barrier()"]
    assert len(barriers) == 2 and barriers[0] < store < barriers[1]
    assert [buffer.shape for buffer in kernel.kept] == [(5, 3)], "each step of the outer loop uses the same buffer"
