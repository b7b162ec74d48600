"""Loops whose state is shared out among programs that meet in every step: what they compute, and what they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.compile import compile_kernel, resources
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.launch.machine.kernels import compiled_for_machine, examine, program_of
from jaxpr2triton.pipeline.xla_time import time_of_xla
from jaxpr2triton.plan.refusal import refused_for_programs
from jaxpr2triton.policy import DEFAULT_POLICY
from tests.policies import moved, planned_with
from tests.spread_programs import F32, PROGRAMS, few_numbers_each, shortest_paths

SM90 = TARGETS["sm_90"]


def close(found: Any, expected: Any) -> None:
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-5 * max(1e-6, float(np.abs(other).max())))


def loss_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(jnp.sum(jnp.sin(each)) for each in jax.tree.leaves(function(*args)))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, backend: str) -> None:
    of, args = PROGRAMS[name], PROGRAMS[name].small()
    with few_numbers_each(of.room):
        kernels = j2t.transpile(of.function, *args).kernels
        found = j2t.fuse(of.function, backend=backend)(*args)
    assert [kernel.meets for kernel in kernels] == [True] and 1 < kernels[0].grid[0] <= 8
    close(found, jax.jit(of.function)(*args))


@pytest.mark.parametrize("name", [name for name, of in PROGRAMS.items() if of.differentiable])
def test_gradients(name: str) -> None:
    of, args = PROGRAMS[name], PROGRAMS[name].small()
    with few_numbers_each(of.room):
        inside = jax.grad(loss_of(of.function), of.differentiable)
        kernels = j2t.transpile(inside, *args).kernels
        of_kernels = jax.grad(loss_of(j2t.fuse(of.function, backend="interpret")), of.differentiable)(*args)
        in_kernels = j2t.fuse(inside, backend="interpret")(*args)
    assert any(kernel.meets for kernel in kernels)
    expected = jax.jit(inside)(*args)
    close(of_kernels, expected)
    close(in_kernels, expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_full_size(name: str) -> None:
    """One kernel, the loop all in it, in less time than XLA's by the estimate; and it is compiled to what fits."""
    of = PROGRAMS[name]
    program = j2t.transpile(of.function, *of.full_shapes(), for_target="sm_90")
    kernels = [kernel for kernel in program.kernels if kernel.meets]
    assert [kernel.grid for kernel in kernels] == [(128, 1, 1)]
    assert not any(each.primitive in ("scan", "while") for each in program.leftovers)
    assert kernels[0].steps is not None
    xla = time_of_xla(program.compiled.stages["normalize"], DEFAULT_POLICY).microseconds
    assert kernels[0].steps.microseconds(SM90.clock) <= DEFAULT_POLICY.loops.spread_pays * xla
    needed = resources(compile_kernel(kernels[0], SM90))
    assert needed.spill_stores + needed.spill_loads <= 64


def test_a_kernel_says_what_it_shows() -> None:
    with few_numbers_each(62):
        (kernel,) = j2t.transpile(shortest_paths, np.ones((16, 16), F32)).kernels
    assert "# shows  shown float32[2,8,2,16], met int32[1] (zero before)\n" in kernel.source
    assert "#        (what programs show each other is read when all have met, and they run at once)\n" in kernel.source
    assert kernel.source.count("_all_meet(met_ptr, 8)") == 1
    assert [(b.name, b.is_exchanged, b.is_met) for b in kernel.kept] == [("shown", True, False), ("met", False, True)]


def test_explain() -> None:
    program = j2t.transpile(PROGRAMS["gray_scott"].function, *PROGRAMS["gray_scott"].full_shapes(), for_target="sm_90")
    (kernel,) = program.kernels
    text = program.explain().replace("\n     ", "")
    assert (
        f"  {kernel.name}: its 128 programs run at once and meet once in a step, of about 1.7 µs with that; they show "
        "each other shown0, shown1"
    ) in text


def test_what_nobody_reads_is_not_stored() -> None:
    """Of four rows of a stencil the two at the edges of a part."""
    of = PROGRAMS["gray_scott"]
    (kernel,) = j2t.transpile(of.function, *of.full_shapes(), for_target="sm_90").kernels
    assert kernel.source.count("tl.store(shown0_ptr") == kernel.source.count("tl.store(shown1_ptr") == 2
    assert kernel.source.count("_all_meet(met_ptr, 128)") == 1  # for both


# -- what is weakened is noticed -----------------------------------------------------------------------------------


def small_kernel() -> tuple[Kernel, tuple[np.ndarray, ...]]:
    args = PROGRAMS["shortest_paths"].small()
    with few_numbers_each(62):
        (kernel,) = j2t.transpile(shortest_paths, *args).kernels
    return kernel, args


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (r"_all_meet\(met_ptr, 8\)", "tl.debug_barrier()", "that no program has written before"),
        (r"shown_ptr \+ turn \* 256", "shown_ptr", "with no meeting between"),
    ],
)
def test_the_interpreter_notices(before: str, after: str, says: str) -> None:
    kernel, args = small_kernel()
    worse = re.sub(before, after, kernel.source)
    assert worse != kernel.source
    run_interpreted(kernel, args)
    with pytest.raises(CompilerBug, match=says):
        run_interpreted(replace(kernel, source=worse), args)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sem='release'", "sem='relaxed'"),
        ("sem='acquire'", "sem='relaxed'"),
        ("    _all_meet(met_ptr, 8)\n", "    tl.debug_barrier()\n"),
        ("shown_ptr + turn * 256", "shown_ptr"),
    ],
)
def test_the_machine_notices(before: str, after: str) -> None:
    kernel, args = small_kernel()
    for source in (kernel.source, kernel.source.replace(before, after)):
        changed = replace(kernel, source=source)
        binary = compiled_for_machine(changed, SM90)
        findings = examine(changed, binary, args, program=program_of(str(binary.code), source)).findings
        assert bool(findings) == (source != kernel.source)


# -- what is not spread --------------------------------------------------------------------------------------------


def why(function: Callable[..., Any], *args: Any) -> str:
    program = j2t.transpile(function, *args)
    assert not any(kernel.meets for kernel in program.kernels)
    (left,) = [each for each in program.leftovers if each.primitive in ("scan", "while")]
    return str(left.why)


def test_reasons() -> None:
    full = PROGRAMS["gray_scott"].full_shapes()
    function = PROGRAMS["gray_scott"].function
    with planned_with(loops={"meeting_us": 100.0}):
        assert re.fullmatch(
            r"one program cannot hold the state of the loop: it carries 524,288 numbers, and 40,632 fit; it would have "
            r"to be split; spread over processors, a kernel of 128 programs takes about \d+ µs for 6 steps and XLA "
            r"about \d+ µs for \d+ launches on all processors",
            why(function, *full),
        )
    with planned_with(cuts={"carried": 0.001, "read_each_step": 1000, "held": 1000}):
        assert why(PROGRAMS["recurrent"].function, *PROGRAMS["recurrent"].full_shapes()) == (
            "one program cannot hold the state of the loop: it carries 1,024 numbers, and 65 fit; it would have to be "
            "split; spread over processors, programs cannot hold their parts of the loop's state: each of 128 would "
            "carry 9 numbers and read 8,200 in each step, and 1,000 fit"
        )
    bodies = PROGRAMS["bodies"]
    gradient = jax.grad(loss_of(bodies.function), (0, 1))
    with planned_with(loops={"spilled_where_programs_meet": 0}):
        program = j2t.transpile(gradient, *bodies.full_shapes(), for_target="sm_90")
        reasons = [str(each.why) for each in program.leftovers]
        put = r"threads of programs that meet would put [\d,]+ bytes aside in each step, and 0 are few"
        assert any(re.search(put, each) for each in reasons)


def test_plans_that_are_refused() -> None:
    """All programs of a schedule run at once, and threads have room for what they keep."""
    program = j2t.transpile(PROGRAMS["gray_scott"].function, *PROGRAMS["gray_scott"].full_shapes(), for_target="sm_90")
    (plan,) = program.compiled.stages["graph"].plans
    assert refused_for_programs(plan) is None

    def refused(**target: int) -> str:
        refusal = refused_for_programs(replace(plan, policy=moved(plan.policy, target=target)))
        assert refusal is not None
        return str(refusal.why)

    assert refused(processors=64) == "128 programs would have to run at once, and there are 64 processors"
    assert re.fullmatch(
        r"threads of programs that meet would keep \d+ numbers each in a step, and have 15 registers",
        refused(registers_of_a_thread=15),
    )
    alone = replace(plan, axes=tuple(replace(each, block=each.axis.size) for each in plan.axes))
    refusal = refused_for_programs(alone)
    assert refusal is not None and refusal.why == "one program would have all parts of the loop's state"


def test_an_exact_order_is_kept() -> None:
    of = PROGRAMS["conjugate_gradients"]
    program = j2t.transpile(of.function, *of.full_shapes(), for_target="sm_90", exact_order=True)
    assert not any(kernel.meets for kernel in program.kernels)


def test_sums_of_16_bits_are_rounded_once() -> None:
    def step(c: Any, _: None) -> Any:
        total = jnp.sum(c)
        return c * (0.5 + total / 4096), total

    def scanned(x: Any) -> Any:
        return lax.scan(step, x, None, length=3)

    x = np.abs(np.random.default_rng(3).standard_normal(256)).astype(jnp.bfloat16)
    with few_numbers_each(40):
        (kernel,) = j2t.transpile(scanned, x).kernels
        found = j2t.fuse(scanned, backend="interpret")(x)
    assert [str(b.dtype) for b in kernel.kept if b.is_exchanged] == ["float32"]
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(scanned)(x)), strict=True):
        np.testing.assert_allclose(np.float32(mine), np.float32(other), rtol=2**-5)


def test_amd_devices_are_left_alone() -> None:
    full = PROGRAMS["gray_scott"].full_shapes()
    program = j2t.transpile(PROGRAMS["gray_scott"].function, *full, for_target="gfx942")
    assert not any(kernel.meets for kernel in program.kernels)
