"""Runs a drawn program in both ways and compares."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from jaxpr2triton import policy
from jaxpr2triton.front import planning
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.roles import Roles
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.pipeline import compiled_program as running
from jaxpr2triton.pipeline import stages
from jaxpr2triton.pipeline.compile import RAW_LOOPS, compile_jaxpr
from jaxpr2triton.pipeline.compiled_program import Compiled
from jaxpr2triton.plan.schedule.schedule import schedules
from jaxpr2triton.policy import Policy
from jaxpr2triton.report.reasons import leftovers_of
from jaxpr2triton.report.summary import Summary
from tests.drawn import helpers
from tests.drawn.generator import UNKNOWN_STEPS
from tests.drawn.oracle import Answer, answers, one_by_one
from tests.drawn.program import Program
from tests.drawn.transforms import arguments, transformed
from tests.policies import planned_with

ROUNDS_AT_MOST = 12  # of the search for decisions, where there is little room
# So little room that short rows are streamed, short sums are split, and little programs have many blocks.
SMALL: dict[str, dict[str, int]] = {
    "target": {"processors": 4, "warp_size": 4},
    "blocks": {"resident": 256},
    "loops": {"kept_by_program": 64, "graph_launch_us": 1e-4},
    "products": {"band": 2},
    "writing": {"branch": 0},
    "cuts": {"small": 8, "held": 1 << 12},
    "splits": {"rows": 4, "elements": 8},
}
# … and what is affine in loops is combined in tiles of two or three steps, in a loop of its own beside what is not; and
# what is drawn is drawn a step ahead.
EAGER = {
    **{"shortest_swept": 2, "steps_of_few_lanes": 3, "steps_of_a_tile": 3},
    **{"worth_parting": 0, "waits_of_a_kernel": -64},  # several loops are better
    **{"worth_ahead": 4, "steps_worth_ahead": 2, "times": 64},
    "scattered_in_a_step": 16,  # what more meets at computed places is added up in memory
}
STRETCHES = {"long_loop": 4}  # … or in stretches side by side
# … or loops are spread over some programs, each of which has room for next to nothing, whatever that takes.
SPREAD: dict[str, dict[str, float]] = {
    "target": {"processors": 8},
    "cuts": {"carried": 14 / 65536, "held": 96, "read_each_step": 64},
    "loops": {"spread_pays": 1e12, "meeting_us": 0.0, "spilled_where_programs_meet": 1 << 20},
}
# The other way round: loops as they stand, with `exact_order`.
PLAIN: dict[str, dict[str, int]] = {"target": {"processors": 1}, "loops": {"steps_ahead": 1}}
NOTHING_AHEAD = {"worth_ahead": 1 << 30}


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

    @property
    def fused_loops(self) -> int:
        """How many loops are in kernels, those in others not counted."""
        regions = [e for p in self.programs for e in p.program.jaxpr.eqns if e.primitive is region_p]
        return sum(e.primitive.name in LOOPS for region in regions for e in region.params["jaxpr"].jaxpr.eqns)

    @property
    def loops_left(self) -> Counter[str]:
        """Why loops stayed with XLA."""
        left = [leftover for program in self.programs for leftover in leftovers_of(program)]
        return Counter(each.why for each in left if each.primitive in (*RAW_LOOPS, *LOOPS))


SOME = 4  # of so many seeds one is for what a device asks for, the smaller schedules of each kernel
CHECKPOINTS = (None, "sqrt", 2)  # each for some of the seeds
PLACES = (0, 0, 1, 2)  # … of the schedules of a loop, by what they are estimated to take: any of them may be asked for


def check(program: Program, seed: int = 0, backend: str = "interpret") -> Outcome:
    """Compare the kernels with plain `jax.jit` on fresh inputs; raises `Mismatch`, or what a mistake of ours raises.

    With the backend "machine" they are compiled, and what the machine finds in them is a mistake of ours; with "triton"
    they run on the device that is here.
    """
    compiled: list[Compiled] = []

    def recording(jaxpr: Any, name: str, roles: Roles, numbers: Policy) -> Compiled:
        compiled.append(compile_jaxpr(jaxpr, name, roles, numbers))
        return compiled[-1]

    checkpoint = CHECKPOINTS[program.seed % len(CHECKPOINTS)]
    asked = {"contractions": "triton", "checkpoint": checkpoint, "exact_order": program.in_order}
    fuse = functools.partial(j2t.fuse, backend=backend, **asked)
    exact = jax.default_matmul_precision("highest")  # as XLA multiplies here anyway
    eager = {**EAGER, **(STRETCHES if program.seed % 2 else {})}
    small = SMALL if backend == "interpret" else {**SMALL, "target": {"processors": 4}}  # compiled, warps are whole
    little, plain_ones = (small if program.small else {}), (PLAIN if program.in_order else {})
    little = SPREAD if program.spread else little
    numbers = {name: {**little.get(name, {}), **plain_ones.get(name, {})} for name in {*little, *plain_ones}}
    common = dataclasses.replace(policy.COMMON, **(eager if program.small else {}))
    common = dataclasses.replace(common, **(NOTHING_AHEAD if program.in_order else {}))
    common = dataclasses.replace(common, **({"programs_that_meet": 2} if program.spread else {}))
    swept = mock.patch.object(policy, "COMMON", common)
    place = PLACES[program.seed // len(CHECKPOINTS) % len(PLACES)]
    scheduled, smaller_ones = (
        mock.patch.object(module, "schedule", functools.partial(schedule_at, place)) for module in (stages, running)
    )
    with exact, jax.enable_x64(program.x64), swept, scheduled, smaller_ones, planned_with(**numbers):
        args = arguments(program, seed)
        plain = transformed(program, lambda f: f)
        try:
            with on_a_processor():
                expected, told = with_what_is_told(jax.jit(plain), args)
        except jax.errors.JaxRuntimeError as problem:
            if "Unsupported elementwise operation" not in str(problem):
                raise
            return Outcome(0, 0, ())  # XLA's CPU cannot run all that JAX traces, as a batched `mulhi`
        raising = mock.patch.dict(os.environ, J2T_RAISE="1")
        with raising, mock.patch.object(planning, "compile_jaxpr", recording):
            found, told_of_kernels = with_what_is_told(transformed(program, fuse), args)
            smaller = [one.alternatives for one in compiled] if program.seed % SOME == 0 else []
            assert all(each or not one.kernels for each, one in zip(smaller, compiled))
    check_told(program, told_of_kernels, told)
    for one in compiled:
        check_coverage(one)
    for n, (one, other) in enumerate(zip(found, expected, strict=True)):
        check_type(one, other, n)
    ours, theirs = [np.asarray(one) for one in found], [np.asarray(other) for other in expected]
    compared, skipped = sum(one.size for one in ours), 0
    if not all(map(almost_equal, ours, theirs)):
        with jax.enable_x64(program.x64), on_a_processor():
            regrouped = "lax.associative_scan(" in program.function_text()
            allowed = answers(plain, args, seed, backend != "interpret", regrouped)
            if regrouped:
                others, _ = with_what_is_told(jax.jit(one_by_one(plain)), args)
                found_so = zip(allowed, ours, theirs, map(np.asarray, others))
                allowed = [each.in_any_order(*values) for each, *values in found_so]
        skipped = sum(check_values(*parts, n) for n, parts in enumerate(zip(ours, theirs, allowed, strict=True)))
    return Outcome(compared - skipped, skipped, tuple(compiled))


def on_a_processor() -> Any:
    """Where JAX's own answers are made, whatever devices there are."""
    return jax.default_device(jax.devices("cpu")[0])


def schedule_at(place: int, region: Any, name: str, shrink: int = 0, roles: Any = None, policy: Any = None) -> Plan:
    """As `schedule`, but one of those that are not the best."""
    plans = schedules(region, name, shrink, roles, policy, place + 1)
    return plans[-1]


def with_what_is_told(function: Any, args: Sequence[Any]) -> tuple[Any, list[tuple[int, ...]]]:
    helpers.TOLD.clear()
    results = jax.block_until_ready(function(*args))
    jax.effects_barrier()
    return results, list(helpers.TOLD)


def check_told(program: Program, found: Sequence[Any], expected: Sequence[Any]) -> None:
    """As much is told, and in the same order if there is one.

    Not where rounding may decide in which branch or step it is told; nor of steps in forward mode, as the linearisation
    of a loop, which is what kernels are made of, tells once what does not change from step to step.
    """
    text = program.function_text()
    forward = program.transform == "jvp" and ("lax.scan(" in text or "lax.fori_loop(" in text)
    if forward or UNKNOWN_STEPS.search(text) or "lax.cond(" in text or "lax.switch(" in text:
        return
    if sorted(found) != sorted(expected):
        raise Mismatch(f"told of {sorted(found)}, expected {sorted(expected)}")
    if text.count("helpers.told(") == text.count("ordered=True") and list(found) != list(expected):
        raise Mismatch(f"told of {found} in this order, expected {expected}")


def check_coverage(compiled: Compiled) -> None:
    """Every region is a kernel that writes something; only what has no rule is left over; all that was found soon."""
    if len(compiled.rounds) > ROUNDS_AT_MOST:
        raise Mismatch(f"{len(compiled.rounds)} rounds: {Summary(compiled).steps}")
    equations = compiled.program.jaxpr.eqns
    regions = [eqn for eqn in equations if eqn.primitive is region_p]
    if len(regions) != len(compiled.kernels) or not all(kernel.outputs for kernel in compiled.kernels):
        raise Mismatch(f"{len(regions)} regions, but {len(compiled.kernels)} kernels")
    for eqn in equations:
        if eqn.primitive.name in (*RAW_LOOPS, *LOOPS):  # they may keep too much
            continue
        renames = eqn.primitive.name in ("reshape", "squeeze")
        renames = renames or all(math.prod(var.aval.shape) == 0 for var in eqn.outvars)
        refusal = why_not(eqn)
        if eqn.primitive is not region_p and not renames and refusal is None:
            raise Mismatch(f"{eqn.primitive.name} has a rule and is left over")


def check_type(found: Any, expected: Any, place: int) -> None:
    for what in ("shape", "dtype", "weak_type"):
        ours, theirs = (getattr(jax.typeof(x), what) for x in (found, expected))
        if ours != theirs:
            raise Mismatch(f"output {place}: {what} {ours}, expected {theirs}")


def almost_equal(found: np.ndarray, expected: np.ndarray) -> bool:
    """So near that nothing has to be known about rounding errors."""
    if not jnp.issubdtype(expected.dtype, jnp.floating):
        return bool((found == expected).all())
    info = jnp.finfo(expected.dtype)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & (np.abs(a - b) <= 4 * float(info.eps) * np.abs(b))
    return bool(((a == b) | near | (np.isnan(a) & np.isnan(b))).all())


def check_values(found: np.ndarray, expected: np.ndarray, answer: Answer, place: int) -> int:
    """Refuses what is near neither JAX's answer nor the precise one; returns how many elements it cannot judge."""
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
    return answer.vague
