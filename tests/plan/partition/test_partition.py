"""Where kernels end: how many there are, what stays inside of one, what XLA keeps, and in which order it all runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.ir.evaluate import needed
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.region import boundary_p, region_p
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.report.explain import least_bytes
from tests import programs
from tests.compiling import BY_NAME, RUNNABLE, compiled, halves_of, shapes_of
from tests.programs import PROGRAMS, windows

Shape = tuple[int, ...]


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def steps(made: Compiled) -> list[str]:
    """What runs one after the other: `kernel` or the name of a primitive of XLA's."""
    eqns = made.program.jaxpr.eqns
    return ["kernel" if eqn.primitive is region_p else eqn.primitive.name for eqn in eqns]


# how many kernels


def test_what_alone_takes_programs_away_is_made_first() -> None:
    """The sum that is read at one step only, not the sums of each row, of which there may be a program each."""

    def function(x: Any, first: Any) -> Any:
        d = jnp.sin(x) + jnp.pad(first.sum(2)[:, None], ((0, 0), (0, 99), (0, 0)))
        return d - d.sum(2, keepdims=True) * jax.nn.softmax(x)

    made = compiled(function, floats(16, 100, 32), floats(16, 32, 41))
    assert [kernel.inputs[-1].shape for kernel in made.kernels] == [(16, 32, 41), (16, 32)]
    assert made.kernels[-1].grid != (16, 1, 1)


ACCEPTED = [program.name for program in PROGRAMS if "one kernel" in program.tags]


SIZES = [(name, size) for name in ACCEPTED for size in ("args", "bench_args") if getattr(BY_NAME[name], size)]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_one_kernel_and_at_most_three_for_the_gradient(name: str, size: str) -> None:
    program = BY_NAME[name]
    make = getattr(program, size)
    with jax.enable_x64("x64" in program.tags):
        args = shapes_of(make)
        plain = j2t.transpile(program.fn, *args)
        kernels = 3 if "long" in program.tags else 1  # few long rows are shared out
        assert (len(plain.kernels), plain.leftovers) == (kernels, ())
        if program.grad is not None:
            pair = j2t.transpile(program.fn, *args, grad=program.grad)
            assert (len(pair.forward.kernels), pair.forward.leftovers) == (kernels, ())
            assert (len(pair.backward.kernels) <= 3, pair.backward.leftovers) == (True, ())


@pytest.mark.parametrize("name", [name for name, size in SIZES if size == "bench_args"])
def test_what_is_moved_is_what_comes_in_and_goes_out(name: str) -> None:
    """A value is read once; rows that are too long to be held are walked once for each reduction."""
    program = BY_NAME[name]
    args = shapes_of(program.bench_args)
    halves = [j2t.transpile(program.fn, *args)]
    if program.grad is not None:
        pair = j2t.transpile(program.fn, *args, grad=program.grad)
        halves += [pair.forward, pair.backward]
    allowed = 2.0 if name.endswith("1000000") else 1.05
    for half in halves:
        moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in half.kernels)
        assert moved <= allowed * least_bytes(half.summary), half.explain()


def test_huber_to_a_scalar() -> None:
    large = floats(4096, 4096)
    pair = j2t.transpile(programs.huber, large, large, grad=(0, 1))
    assert (len(pair.forward.kernels), len(pair.backward.kernels)) == (2, 1)
    assert len(j2t.transpile(programs.huber, large, large).kernels) == 2


@pytest.mark.parametrize("fn", [programs.sum_of_squares, programs.sum_of_atan2])
def test_the_gradient_of_a_sum_is_pointwise(fn: Callable[..., Any]) -> None:
    """The gradient does not compute the sum."""
    images = floats(28, 28, 1, 128)
    gradient = j2t.transpile(jax.grad(fn), images)
    (kernel,) = gradient.kernels
    assert {axis.role for axis in kernel.axes} == {Role.GRID}
    assert "tl.sum" not in kernel.source and "tl.reduce" not in kernel.source
    assert gradient.leftovers == ()
    assert len(j2t.transpile(fn, images, grad=0).backward.kernels) == 1


# order


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_kernel_writes_once_and_reads_what_is_there(name: str) -> None:
    for half in halves_of(name):
        jaxpr = half.compiled.program.jaxpr
        there = set(jaxpr.invars)
        for eqn in jaxpr.eqns:
            read = {atom for atom in eqn.invars if not hasattr(atom, "val")}
            assert read <= there
            assert not set(eqn.outvars) & there
            there |= set(eqn.outvars)
        atoms = [atom for eqn in jaxpr.eqns for atom in eqn.invars] + list(jaxpr.outvars)
        used = {atom for atom in atoms if not hasattr(atom, "val")}
        unused = [v for eqn in jaxpr.eqns if eqn.primitive is region_p for v in eqn.outvars if v not in used]
        assert not unused, "a kernel writes what nobody reads"


@pytest.mark.parametrize("name", RUNNABLE)
def test_regions_hold_nothing_that_a_kernel_cannot_compute(name: str) -> None:
    for half in halves_of(name):
        for eqn in half.compiled.program.jaxpr.eqns:
            if eqn.primitive is not region_p:
                assert eqn.primitive is not boundary_p
                continue
            region = eqn.params["jaxpr"].jaxpr
            assert [why_not(inner) for inner in region.eqns if why_not(inner) is not None] == []
            assert len(needed(region.eqns, region.outvars, region.invars)) == len(region.eqns), "a dead equation"
            read = {atom for inner in region.eqns for atom in inner.invars if not hasattr(atom, "val")}
            assert set(region.invars) <= read, "an operand that nobody reads"


X = floats(512, 768)


@pytest.mark.parametrize(
    ("fn", "avals", "expected"),
    [
        (lambda x: x, [X], []),
        (lambda x: x.reshape(-1), [X], ["reshape"]),
        (lambda x: (x.reshape(-1), x.reshape(768, 512) * 2), [X], ["reshape", "kernel"]),
        (lambda x: windows(x * 2) + 1, [X], ["kernel", "reduce_window_sum", "kernel"]),
        (lambda x: windows(x.reshape(-1)) + 1, [X], ["reshape", "reduce_window_sum", "kernel"]),
        (lambda x: (windows(x), jnp.exp(x)), [X], ["reduce_window_sum", "kernel"]),
        (lambda x: windows(windows(x)), [X], ["reduce_window_sum", "reduce_window_sum"]),
        (lambda x: windows(x + x.sum()) * x.sum(), [X], ["kernel", "kernel", "kernel", "reduce_window_sum", "kernel"]),
        (lambda x: (x * 2, x + 1, x - 1), [X], ["kernel"]),
        (lambda x: (x * 2, x.T + 1), [X], ["kernel", "kernel"]),
        (lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, axis=1), x.max(1)), [X], ["kernel"]),
        (lambda x: (x.max(1), x.T.max(0)), [X], ["kernel"]),
        (lambda x: x / x.sum(), [X], ["kernel", "kernel", "kernel"]),
        (lambda x: x / x.sum(), [floats(6, 7)], ["kernel"]),
        (lambda x: x.sum(), [floats(6, 7)], ["kernel"]),
        (lambda x: x.sum(), [X], ["kernel", "kernel"]),
        (lambda x: x.sum(0), [X], ["kernel", "kernel"]),
        (lambda x: x.sum(1), [X], ["kernel"]),
        (lambda x: jax.nn.softmax(x, 0), [X], ["kernel"]),
        (lambda x: jax.nn.logsumexp(x, axis=1) - x[:, 0], [X], ["kernel"]),
        (lambda x, y: (jnp.zeros((3, 4)), y * 2), [X, floats(0, 5)], ["kernel"]),
    ],
)
def test_what_runs(fn: Callable[..., Any], avals: list[Any], expected: list[str]) -> None:
    found = [step for step in steps(compiled(fn, *avals)) if step != "broadcast_in_dim"]
    assert found == expected
