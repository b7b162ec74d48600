"""Chains of stencils in the steps of loops: what is wanted at many places is written once, and read at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

Step = Callable[[jax.Array], jax.Array]
RNG = np.random.default_rng(5)


def moved(u: jax.Array, by: int, axis: int, wraps: bool) -> jax.Array:
    """What is `by` places further on; beyond the end what is at the start, or zeros."""
    if wraps:
        return jnp.roll(u, -by, axis)
    edges = [(max(-by, 0), max(by, 0)) if d == axis else (0, 0) for d in range(u.ndim)]
    return lax.slice_in_dim(jnp.pad(u, edges), max(by, 0), max(by, 0) + u.shape[axis], axis=axis)


def chain(seed: int, rank: int, links: int = 5) -> Step:
    """Sums of neighbours, through a function, one after the other."""
    rng = np.random.default_rng(seed)
    drawn = [
        [
            (int(rng.integers(-2, 3)), int(rng.integers(rank)), bool(rng.integers(2)), float(rng.normal()))
            for _ in range(3)
        ]
        for _ in range(links)
    ]

    def step(u: jax.Array) -> jax.Array:
        for terms in drawn:
            u = jnp.tanh(0.5 * u + sum(times * moved(u, by, axis, wraps) for by, axis, wraps, times in terms))
        return u

    return step


def repeated(step: Step, times: int = 2) -> Step:
    return lambda u: lax.scan(lambda u, _: (step(u), None), u, None, length=times)[0]


def values_of(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def keeps(program: j2t.Program) -> int:
    return program.source.count("# keeps ")


def assert_right(function: Callable[..., Any], x: jax.Array, backend: Any = "interpret", **options: Any) -> None:
    """As near to `jax.jit`'s result as that is to the exact one, or nearer than rounding is: some steps amplify it."""
    expected = jax.jit(function)(x)
    found = j2t.fuse(function, backend=backend, **options)(x)
    rounding = 2e-5 * float(jnp.abs(expected).max())
    if x.dtype == jnp.float32:
        with jax.enable_x64(True):
            exact = jax.jit(function)(np.asarray(x, np.float64))
        rounding += 4 * float(np.abs(np.asarray(expected, np.float64) - np.asarray(exact)).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)


def loss(function: Step) -> Step:
    return lambda u: jnp.sum(jnp.sin(function(u)))


CHAINS = [(1, 1), (2, 2)]


@pytest.mark.parametrize("seed, rank", CHAINS)
def test_a_random_chain(seed: int, rank: int) -> None:
    function, u = repeated(chain(seed, rank)), values_of(*(9, 7)[:rank])
    made = j2t.transpile(function, u)
    assert keeps(made) and not made.leftovers
    assert_right(function, u)


@pytest.mark.parametrize("seed, rank", CHAINS)
def test_the_gradient_of_a_random_chain(seed: int, rank: int) -> None:
    function, u = repeated(chain(seed, rank)), values_of(*(9, 7)[:rank])
    expected = jax.jit(jax.grad(loss(function)))(u)
    most = 5e-5 * float(jnp.abs(expected).max())
    assert_right(jax.grad(loss(function)), u)
    found = jax.grad(loss(j2t.fuse(function, backend="interpret")))(u)
    np.testing.assert_allclose(found, expected, rtol=0, atol=most)


@pytest.mark.parametrize("seed, rank", CHAINS)
def test_lanes_of_a_random_chain(seed: int, rank: int) -> None:
    function = repeated(chain(seed, rank))
    assert_right(jax.vmap(function), values_of(3, *(9, 7)[:rank]))


def test_no_thread_reads_what_another_has_not_written() -> None:
    """The machine finds races: between the barriers of a step, and of the next one."""
    assert_right(repeated(chain(3, 2), 3), values_of(9, 7), "machine")
    assert_right(jax.grad(loss(repeated(chain(3, 1), 3))), values_of(40), "machine")


def neighbours(u: jax.Array) -> jax.Array:
    return sum((moved(u, by, axis, False) for by in (-1, 1) for axis in (0, 1)), 0.0 * u)


def of_many(links: int, links_of: Step = neighbours) -> Step:
    def step(u: jax.Array) -> jax.Array:
        for _ in range(links):
            u = links_of(u) / 4
        return u

    return repeated(step)


def test_one_stencil_of_another_is_computed_in_registers() -> None:
    made = [j2t.transpile(of_many(links), values_of(8, 8)) for links in (2, 3)]
    assert [keeps(each) for each in made] == [0, 1]


def test_what_is_computed_grows_as_a_chain_does() -> None:
    """Each link adds as many lines."""
    lines = [len(j2t.transpile(of_many(links), values_of(16, 16)).source.splitlines()) for links in (6, 8, 10)]
    assert lines[2] - lines[1] == lines[1] - lines[0]


def test_a_chain_in_the_loop_of_a_step() -> None:
    inner, outer = chain(4, 1, 4), chain(5, 1, 4)

    def step(u: jax.Array) -> jax.Array:
        last, means = lax.scan(lambda v, _: (inner(v), v.mean()), outer(u), None, length=2)
        return outer(last + means.sum())

    made = j2t.transpile(repeated(step), values_of(9))
    assert keeps(made) and not made.leftovers
    assert_right(repeated(step), values_of(9))
    assert_right(jax.grad(loss(repeated(step))), values_of(9))


def test_a_chain_in_one_case_of_a_step() -> None:
    function = repeated(lambda u: lax.cond(u.sum() > 0, chain(6, 1, 4), lambda u: -u, u), 4)
    assert_right(function, values_of(9))


def test_cells_that_live_or_not() -> None:
    """What is kept may be of any type."""

    def lives(u: jax.Array) -> jax.Array:
        wide = u.astype(jnp.int32)
        around = [jnp.roll(wide, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
        number = sum(around, jnp.zeros_like(wide))
        return (number == 3) | (u & (number == 2))

    u = jnp.asarray(RNG.random((8, 6)) > 0.6)
    function = repeated(lambda u: lives(lives(lives(u))))
    assert keeps(j2t.transpile(function, u))
    np.testing.assert_array_equal(j2t.fuse(function, backend="interpret")(u), jax.jit(function)(u))


def test_wavelets() -> None:
    """Grids that are half as long each time, and a chain between them."""

    def step(u: jax.Array) -> jax.Array:
        details = []
        for _ in range(3):
            even, odd = u[0::2], u[1::2]
            details.append(odd - 0.5 * (even + jnp.roll(even, -1)))
            u = even + 0.25 * (details[-1] + jnp.roll(details[-1], 1))
        for detail in reversed([jnp.tanh(each) for each in details]):
            even = u - 0.25 * (detail + jnp.roll(detail, 1))
            odd = detail + 0.5 * (even + jnp.roll(even, -1))
            u = jnp.stack([even, odd], -1).reshape(-1)
        return u

    assert_right(repeated(step), values_of(16))
    assert_right(jax.grad(loss(repeated(step))), values_of(16))


def test_what_no_step_changes_is_not_kept() -> None:
    """It is there before the loop, wherever it is wanted."""

    def around(u: jax.Array) -> jax.Array:
        return sum((jnp.roll(u, by) for by in range(-4, 5)), 0.0 * u)

    def moved_by(drift: jax.Array, u: jax.Array) -> jax.Array:
        return repeated(lambda u: 0.5 * u + around(jnp.exp(around(jnp.tanh(drift)))))(u)

    def waving(u: jax.Array) -> jax.Array:
        return repeated(lambda u: 0.5 * u + around(jnp.exp(around(jnp.sin(jnp.arange(9) * 0.3)))))(u)

    assert not keeps(j2t.transpile(moved_by, values_of(9), values_of(9)))
    assert not keeps(j2t.transpile(waving, values_of(9)))


def test_elements_that_are_computed_once_each_are_not_kept() -> None:
    """Of a small state each place may be a variable, and lanes of several sums want the same, named otherwise."""

    def lorenz(u: jax.Array) -> jax.Array:
        def slope(u: jax.Array) -> jax.Array:
            return jnp.stack([u[1] - u[0], u[0] * (2 - u[2]) - u[1], u[0] * u[1] - u[2]])

        first = slope(u)
        second = slope(u + 0.1 * first)
        return u + 0.1 * slope(u + 0.1 * second)

    matrices = values_of(3, 5, 5)

    def summed(u: jax.Array) -> jax.Array:
        for _ in range(3):
            found = jnp.tanh(u)
            u = sum((matrix @ found for matrix in matrices), found)
        return u

    assert not keeps(j2t.transpile(repeated(lorenz), values_of(3)))
    assert not keeps(j2t.transpile(repeated(summed), values_of(5)))


def test_what_is_kept_and_why_is_told() -> None:
    told = j2t.transpile(of_many(3), values_of(8, 8)).explain(why=True)
    assert "a step would compute the same at very many places: the kernel keeps" in " ".join(str(told).split())


def test_a_chain_around_a_product_with_a_large_matrix() -> None:
    """Which is read block by block, along the axis of what is kept."""
    matrix, before, behind = values_of(300, 300) / 17, chain(7, 1, 3), chain(8, 1, 3)
    function = repeated(lambda u: behind(matrix @ before(u)))
    made = j2t.transpile(function, values_of(300), contractions="triton")
    assert keeps(made) and not made.leftovers
    assert_right(function, values_of(300), contractions="triton")
