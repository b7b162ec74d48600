"""The named programs, compiled once, and the inputs of what their gradients are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.ir.tracing import trace
from jaxpr2triton.pipeline.compile import compile_jaxpr
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.policy import DEFAULT_POLICY, Policy
from tests.loop_programs import PROGRAMS as LOOP_PROGRAMS
from tests.programs import PROGRAMS, Arguments, Program

BY_NAME = {program.name: program for program in PROGRAMS}
LOOPING = tuple(program.name for program in LOOP_PROGRAMS)
RUNNABLE = tuple(program.name for program in PROGRAMS if "long" not in program.tags)  # in the interpreter


@dataclass(frozen=True, eq=False)
class Half:
    """What is compiled as a whole: a program without gradient, or one of the two that make a gradient."""

    program: Program
    compiled: Compiled
    inputs: tuple[np.ndarray, ...]

    def enable_x64(self) -> Any:
        return jax.enable_x64("x64" in self.program.tags)

    @property
    def digits(self) -> float:
        """The largest error to be expected, as a part of the largest value of an array."""
        return {"low": 4e-2, "x64": 1e-10}.get(next(iter({"low", "x64"} & self.program.tags), ""), 5e-5)


def compiled(fn: Callable[..., Any], *args: Any, name: str = "program", policy: Policy = DEFAULT_POLICY) -> Compiled:
    """A function of flat arguments through all stages."""
    jaxpr, constants = trace(fn, *args)
    assert not constants
    return compile_jaxpr(jaxpr, name, policy=policy)


@functools.cache
def halves_of(name: str) -> tuple[Half, ...]:
    """The program; or, where it has a gradient, the forward and the backward program."""
    program = BY_NAME[name]
    with jax.enable_x64("x64" in program.tags):
        args = program.args(np.random.default_rng())
        flat = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(args))
        if program.grad is None:
            return (Half(program, j2t.transpile(program.fn, *args).compiled, flat),)
        pair = j2t.transpile(program.fn, *args, grad=program.grad)
        forward, backward = pair.forward.compiled, pair.backward.compiled
        saved: list[Any] = []
        value, residuals = pair.forward(*args)
        saved += residuals
        moving = [leaf for leaf in jax.tree.leaves(value) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        rng = np.random.default_rng()
        saved += [np.asarray(rng.standard_normal(leaf.shape)).astype(leaf.dtype) for leaf in moving]
        return Half(program, forward, flat), Half(program, backward, tuple(map(np.asarray, saved)))


@functools.cache
def kernels_of(name: str) -> tuple[Kernel, ...]:
    """Those of a named program and of its gradient; a program with loops has both in one."""
    if name in BY_NAME:
        return tuple(kernel for half in halves_of(name) for kernel in half.compiled.kernels)
    (program,) = (program for program in LOOP_PROGRAMS if program.name == name)
    with program.precision():
        args = program.args(np.random.default_rng(0))
        functions = [program.fn] if program.grad is None else [program.fn, program.gradient()]
        return tuple(kernel for fn in functions for kernel in j2t.transpile(fn, *args).kernels)


def differences(found: Any, expected: Any, digits: float) -> list[str]:
    """Where arrays differ by more than `digits` of the largest value; empty if they agree."""
    lines = []
    for number, (have, want) in enumerate(zip(found, expected, strict=True)):
        have, want = np.asarray(have), np.asarray(want)
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        same = (have == want) | ((have != have) & (want != want))
        if jnp.issubdtype(want.dtype, jnp.inexact) and not same.all():
            precise, exact = have.astype(np.float64), want.astype(np.float64)
            finite = np.isfinite(precise) & np.isfinite(exact)
            scale = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
            same |= finite & (np.abs(np.where(finite, precise - exact, 0.0)) <= digits * scale)
        for place in np.argwhere(~same)[:3]:
            where = tuple(map(int, place))
            lines.append(f"output {number}{list(where)}: {have[where]}, expected {want[where]}")
    return lines


class Shapes:
    """Stands for a random generator where only shapes matter: all its numbers are one, in no memory."""

    def standard_normal(self, shape: Any = ()) -> np.ndarray:
        return np.broadcast_to(np.ones(()), shape)

    def uniform(self, low: float, high: float, shape: Any = ()) -> np.ndarray:
        return self.standard_normal(shape)


def shapes_of(arguments: Arguments) -> tuple[Any, ...]:
    """The arguments of a program, however large, as shapes and dtypes."""
    generator: Any = Shapes()
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype), arguments(generator))
