"""Runs a drawn program in both ways and compares."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from jaxpr2triton import fused
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.partition import cut, group
from jaxpr2triton.partition import split as partition_split
from jaxpr2triton.pipeline import Compiled, compile_jaxpr
from jaxpr2triton.rules.coverage import why_not
from jaxpr2triton.schedule import schedule
from tests.drawn.oracle import Answer, answers
from tests.drawn.program import Program
from tests.drawn.transforms import arguments, transformed

# So little room that short rows are streamed, short sums are split, and little programs have many blocks.
SMALL = (
    (schedule, {"RESIDENT": 128, "STREAMED": 32, "POINTWISE_BLOCK": 64}),
    (cut, {"SMALL": 8, "ENOUGH_PROGRAMS": 2}),
    (group, {"CHEAP_TO_JOIN": 64, "WALKED": 64, "RESIDENT": 32}),
    (partition_split, {"FEW_PROGRAMS": 4, "PROGRAMS_WANTED": 8, "LITTLE_WORK": 32}),
    (partition_split, {"COMPANION_CHUNKS": 4, "ROWS_AT_LEAST": 4, "WORTH_SHARING": 64, "CHUNK_AT_LEAST": 8}),
)


class Mismatch(AssertionError):
    """The kernels gave something else than JAX."""


@dataclass(frozen=True)
class Outcome:
    """What was found out about a program that passed."""

    compared: int  # elements
    skipped: int  # elements that rounding errors decide
    programs: tuple[Compiled, ...]

    @property
    def kernels(self) -> tuple[Any, ...]:
        return tuple(kernel for program in self.programs for kernel in program.kernels)


@contextlib.contextmanager
def little_room(small: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module, constants in SMALL if small else ():
            for name, value in constants.items():
                stack.enter_context(mock.patch.object(module, name, value))
        yield


def check(program: Program, seed: int = 0) -> Outcome:
    """Compare the kernels with plain `jax.jit` on fresh inputs; raises `Mismatch`."""
    compiled: list[Compiled] = []

    def recording(jaxpr: Any, name: str) -> Compiled:
        compiled.append(compile_jaxpr(jaxpr, name))
        return compiled[-1]

    fuse = functools.partial(j2t.fuse, backend="interpret")
    with jax.enable_x64(program.x64), little_room(program.small):
        args = arguments(program, seed)
        plain = transformed(program, lambda f: f)
        expected = jax.jit(plain)(*args)
        with mock.patch.object(fused, "compile_jaxpr", recording):
            found = transformed(program, fuse)(*args)
            jax.block_until_ready(found)
        allowed = answers(plain, args, seed)
    for one in compiled:
        check_coverage(one)
    compared = skipped = 0
    for n, (one, other, answer) in enumerate(zip(found, expected, allowed, strict=True)):
        check_type(one, other, n)
        unstable = check_values(np.asarray(one), np.asarray(other), answer, n)
        compared, skipped = compared + unstable.size - int(unstable.sum()), skipped + int(unstable.sum())
    return Outcome(compared, skipped, tuple(compiled))


def check_coverage(compiled: Compiled) -> None:
    """Every region is a kernel that writes something; only what has no rule is left over."""
    equations = compiled.program.jaxpr.eqns
    regions = [eqn for eqn in equations if eqn.primitive is region_p]
    if len(regions) != len(compiled.kernels) or not all(kernel.outputs for kernel in compiled.kernels):
        raise Mismatch(f"{len(regions)} regions, but {len(compiled.kernels)} kernels")
    for eqn in equations:
        renames = eqn.primitive.name == "reshape" or all(math.prod(var.aval.shape) == 0 for var in eqn.outvars)
        if eqn.primitive is not region_p and not renames and why_not(eqn) is None:
            raise Mismatch(f"{eqn.primitive.name} has a rule and is left over")


def check_type(found: Any, expected: Any, place: int) -> None:
    for what in ("shape", "dtype", "weak_type"):
        ours, theirs = (getattr(jax.typeof(x), what) for x in (found, expected))
        if ours != theirs:
            raise Mismatch(f"output {place}: {what} {ours}, expected {theirs}")


def check_values(found: np.ndarray, expected: np.ndarray, answer: Answer, place: int) -> np.ndarray:
    """Where the result is near neither JAX's answer nor the precise one, and rounding errors are no excuse."""
    with np.errstate(all="ignore"):
        if jnp.issubdtype(expected.dtype, jnp.floating):
            a, b, c = (x.astype(np.float64) for x in (found, expected, answer.value.astype(expected.dtype)))
            right = (a == b) | (np.isnan(a) & np.isnan(b)) | (a == c) | (np.isnan(a) & np.isnan(c))
            near = (np.abs(a - b) <= answer.allowed) | (np.abs(a - answer.value) <= answer.allowed)
            right |= near & np.isfinite(a)
        else:
            right = (found == expected) | (found == answer.value)
    wrong = np.argwhere(~right & ~answer.unstable)
    if len(wrong):
        at = tuple(int(n) for n in wrong[0])
        raise Mismatch(
            f"output {place}{list(at)}: {found[at]!r}, expected {expected[at]!r} "
            f"(precisely {answer.value[at]!r} up to {answer.allowed[at]:.3g}); {len(wrong)} of {found.size} are wrong"
        )
    return answer.unstable
