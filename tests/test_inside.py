"""Loops that stay with XLA, whose steps are made of kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton import fuse, transpile


def settled(x: jax.Array) -> jax.Array:
    """A loop that fits a kernel."""
    return lax.fori_loop(0, 20, lambda _, c: jnp.sin(c) + 1e-3 * c.sum(), x)


def in_a_scan(x: jax.Array) -> Any:
    """XLA has no kernel's way for a Fourier transform, and so it runs the scan."""

    def step(c: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        c = settled(jnp.fft.fft(c).real) * 0.1
        return c, c.sum()

    return lax.scan(step, x, length=4)


def in_a_while(x: jax.Array) -> Any:
    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        i, c = state
        return i + 1, settled(jnp.fft.fft(c).real) * 0.1

    return lax.while_loop(lambda state: state[0] < 4, step, (0, x))


def in_two_scans(x: jax.Array) -> Any:
    return lax.scan(lambda c, _: (in_a_scan(c)[0], None), x, length=2)[0]


def many_sums(x: jax.Array) -> Any:
    """A step for which XLA launches ten sums, and kernels fewer."""

    def step(c: jax.Array, _: None) -> tuple[jax.Array, None]:
        for _ in range(10):
            c = jnp.tanh(c - c.mean())
        return jnp.fft.fft(c).real, None

    return lax.scan(step, x, length=3)[0]


PROGRAMS = [in_a_scan, in_a_while, in_two_scans, many_sums]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values(program: Any) -> None:
    x = jax.random.normal(jax.random.key(0), (16,))
    for got, want in zip(jax.tree.leaves(fuse(program, backend="interpret")(x)), jax.tree.leaves(jax.jit(program)(x))):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
        assert jax.typeof(got) == jax.typeof(want)


@pytest.mark.parametrize("program", [in_a_scan, in_two_scans], ids=lambda program: program.__name__)
def test_gradients(program: Any) -> None:
    x = jax.random.normal(jax.random.key(1), (16,))

    def total(function: Any) -> Any:
        return jax.grad(lambda x: jax.tree.leaves(function(x))[0].sum())

    got, want = total(fuse(program, backend="interpret"))(x), total(jax.jit(program))(x)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_report_says_so(program: Any) -> None:
    compiled = transpile(program, jnp.ones(16))
    (left,) = (left for left in compiled.leftovers if left.primitive in ("scan", "while"))
    assert left.step is not None
    first = left.step.kernels[0].name
    kernels = f"{count} kernels" if (count := len(left.step.kernels)) > 1 else "1 kernel"
    assert f"each step launches {kernels}: {first}" in compiled.explain()
    assert f"def {first}(" in compiled.source
    (facts,) = (each for each in compiled.explain_json()["leftovers"] if each["step"])
    assert facts["step"][0] == first


def test_a_step_of_little_work_stays_with_xla() -> None:
    def program(x: jax.Array) -> Any:
        return lax.scan(lambda c, _: (jnp.fft.fft(jnp.sin(c)).real, None), x, length=3)[0]

    (left,) = transpile(program, jnp.ones(16)).leftovers
    assert left.step is None


@pytest.mark.parametrize("ordered", [False, True])
def test_a_step_that_tells_something(ordered: bool) -> None:
    """What calls Python stays in its place, and the loop beside it is in a kernel."""
    told: list[float] = []

    def program(x: jax.Array) -> jax.Array:
        def step(c: jax.Array, _: None) -> tuple[jax.Array, None]:
            c = settled(c) * 0.5
            jax.debug.callback(lambda total: told.append(float(total)), c.sum(), ordered=ordered)
            return c, None

        return lax.scan(step, x, length=4)[0]

    x = jax.random.normal(jax.random.key(0), (16,))
    results = []
    for run in (jax.jit(program), fuse(program, backend="interpret")):
        told.clear()
        results.append((np.asarray(run(x)), (jax.effects_barrier(), list(told))[1]))
    (want, want_told), (got, got_told) = results
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(got_told, want_told, rtol=2e-5)
    (left,) = (left for left in transpile(program, x).leftovers if left.primitive == "scan")
    assert left.step is not None
