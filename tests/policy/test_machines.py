"""Kernels are planned for the machine that they are for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.errors import KernelRefused, UserError
from jaxpr2triton.front import planning
from jaxpr2triton.front.options import Settings
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.ir.kernel import Kernel, Role
from jaxpr2triton.launch.call import devices
from jaxpr2triton.launch.compile.compile import compile_kernel
from jaxpr2triton.policy import DEFAULT_POLICY, Policy, policy_of
from tests.loop_programs import PROGRAMS as LOOPS
from tests.programs import PROGRAMS

BY_NAME = {program.name: program for program in (*PROGRAMS, *LOOPS)}
MACHINES = ("sm_80", "sm_90", "sm_100", "gfx942")


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def column_sum(x: Any) -> Any:
    return x.sum(0)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, 1)


def gradients(x: Any, scale: Any) -> Any:
    """Written row by row, and summed over all rows."""
    return jax.grad(lambda x, scale: jnp.sin(softmax(x) * scale).sum(), (0, 1))(x, scale)


def kernels_for(target: str, fn: Any, *args: Any) -> tuple[Kernel, ...]:
    return j2t.transpile(fn, *args, for_target=target).kernels


def numbers(policy: Policy) -> dict[str, float]:
    subjects = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
    return {f"{name}.{n}": v for name, each in subjects.items() if name != "target" for n, v in vars(each).items()}


def test_an_h100_has_the_numbers_that_are_written_down() -> None:
    written = {name: type(getattr(DEFAULT_POLICY, name))() for name in vars(DEFAULT_POLICY) if name != "target"}
    assert vars(DEFAULT_POLICY) == {"target": TARGETS["sm_90"], **written}


def test_what_is_different_about_other_machines() -> None:
    h100, a100, mi300 = (numbers(policy_of(TARGETS[name])) for name in ("sm_90", "sm_80", "gfx942"))
    assert a100 == h100, "it has fewer processors, and that is all"
    some = ("blocks.resident", "blocks.warps", "loops.kept_by_program", "products.of_a_thread")
    assert [h100[name] for name in some] == [16_384, 16, 34_400, 128]
    assert [mi300[name] for name in some] == [16_384, 8, 68_800, 256]


def test_tiles_fit_into_shared_memory() -> None:
    """A tile that lanes exchange is half of an MI300's registers at most, for it has no more shared memory."""
    assert policy_of(TARGETS["gfx942"]).blocks.resident * 4 == TARGETS["gfx942"].shared_bytes
    for target in TARGETS.values():
        assert policy_of(target).blocks.resident * 4 <= target.shared_bytes


def test_instructions_take_as_long_as_there_are_cores() -> None:
    assert {name: TARGETS[name].issue for name in MACHINES} == {"sm_80": 2, "sm_90": 1, "sm_100": 1, "gfx942": 4}


def test_programs_are_planned_for_the_machine() -> None:
    """Long sums are shared out among the processors there are, and rows have as many lanes as in smaller warps."""
    chunks = {name: kernels_for(name, column_sum, floats(100_000, 64))[0].grid[1] for name in MACHINES}
    assert chunks == {"sm_80": 196, "sm_90": 196, "sm_100": 391, "gfx942": 782}
    backward = {name: kernels_for(name, gradients, floats(8192, 512), floats(512))[0].grid[0] for name in MACHINES}
    assert backward == {"sm_80": 103, "sm_90": 128, "sm_100": 147, "gfx942": 293}
    rows = {name: kernels_for(name, softmax, floats(4096, 4000))[0].num_warps for name in MACHINES}
    assert rows == {"sm_80": 8, "sm_90": 8, "sm_100": 8, "gfx942": 4}


@pytest.mark.parametrize("name", ["softmax_1000", "layer_norm", "gelu_tanh", "transposes", "rnn", "lorenz_rk4", "gru"])
@pytest.mark.parametrize("target", MACHINES)
def test_plans_are_sane(name: str, target: str) -> None:
    program = BY_NAME[name]
    args = program.args(np.random.default_rng(0))
    made = j2t.transpile(program.fn, *args, for_target=target)
    assert made.compiled.policy.target is TARGETS[target]
    for plan in made.stages["schedule"].plans:
        assert plan.policy is policy_of(TARGETS[target])
        threads = plan.num_warps * plan.policy.target.warp_size
        held = math.prod(axis.block for axis in plan.axes if axis.role in (Role.LANE, Role.GRID))
        assert threads <= 1024
        assert plan.num_warps == 1 or held >= threads, "every lane has something to do"


@pytest.mark.parametrize("target", MACHINES)
def test_what_is_planned_for_a_machine_compiles_for_it(target: str) -> None:
    for kernel in kernels_for(target, softmax, floats(64, 5000)):
        assert compile_kernel(kernel, TARGETS[target])


def test_one_function_on_two_targets_has_two_plans() -> None:
    jaxpr = jax.make_jaxpr(softmax)(np.zeros((4096, 4000), np.float32))
    one, other, again = (
        planning.compiled_program(jaxpr, "softmax", Settings(target=TARGETS[name]))
        for name in ("sm_90", "gfx942", "sm_90")
    )
    assert one is again is not other
    assert one.kernels[0].num_warps != other.kernels[0].num_warps


def test_values_of_what_is_planned_for_others() -> None:
    x = np.random.default_rng(3).standard_normal((40, 300)).astype(np.float32)
    for target in MACHINES:
        made = j2t.transpile(softmax, x, for_target=target)
        np.testing.assert_allclose(made(x), jax.nn.softmax(x, 1), rtol=1e-5)
        pair = j2t.transpile(lambda x: (softmax(x) * x).sum(), x, grad=0, for_target=target)
        _, found = pair(x)
        np.testing.assert_allclose(found, jax.grad(lambda x: (softmax(x) * x).sum())(x), rtol=1e-4, atol=1e-6)
        assert pair.backward.compiled.policy.target.name == target


def test_the_knob_says_what_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert j2t.transpile(softmax, floats(8, 8)).compiled.policy is DEFAULT_POLICY
    monkeypatch.setenv("J2T_TARGET", "gfx942")
    assert j2t.transpile(softmax, floats(8, 9)).compiled.policy.target.name == "gfx942"
    assert j2t.transpile(softmax, floats(8, 9), for_target="sm_80").compiled.policy.target.name == "sm_80"


def test_what_is_lowered_for_a_platform_is_planned_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_local_capability", {"cuda": "8.0", "rocm": "gfx942:sramecc+"}.get)
    assert [devices.planned_for(each).name for each in ("cuda", "rocm", "")] == ["sm_80", "gfx942", "sm_80"]
    monkeypatch.setattr(devices, "_local_capability", {"rocm": "gfx906"}.get)
    assert devices.planned_for("rocm").name == "gfx942", "that it is refused is said where kernels are compiled"
    with pytest.raises(KernelRefused):
        devices.target_for("rocm")


def test_an_unknown_target_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="unknown target 'sm_91'"):
        j2t.transpile(softmax, floats(8, 8), for_target="sm_91")


def test_an_argument_may_be_called_target() -> None:
    made = j2t.transpile(lambda x, target: jnp.abs(x - target).sum(), floats(8), target=floats(8))
    assert [buffer.name for buffer in made.kernels[0].inputs] == ["x", "target"]
