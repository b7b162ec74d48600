"""Every stage preserves every named program, and the pipeline records and checks what each made."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Leftover
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.pipeline import stages
from jaxpr2triton.pipeline.compile import STAGES, compile_jaxpr
from jaxpr2triton.pipeline.compiled_program import SHRINKS
from jaxpr2triton.policy import DEFAULT_POLICY
from jaxpr2triton.report.reasons import leftovers_of
from tests.compiling import RUNNABLE, compiled, differences, halves_of

JAXPR_STAGES = ("trace", "normalize", "partition")
X = np.ones((6, 40), np.float32)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_stage_preserves_every_program(name: str) -> None:
    for half in halves_of(name):
        stages = half.compiled.stages

        def as_jaxprs(*args: Any, stages: Any = stages) -> list[Any]:
            return [run(stages[stage], *args) for stage in JAXPR_STAGES]

        def as_kernels(*args: Any, compiled: Any = half.compiled) -> list[Any]:
            return compiled.run("interpret", False, *args)

        with half.enable_x64():
            expected, *found = jax.jit(as_jaxprs)(*half.inputs)
            found.append(jax.jit(as_kernels)(*half.inputs))
        for stage, results in zip((*JAXPR_STAGES[1:], "emit"), found, strict=True):
            assert differences(results, expected, half.digits) == [], f"{half.compiled.name} after {stage}"


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_each_stage_made_fits_the_next(name: str) -> None:
    for half in halves_of(name):
        stages = half.compiled.stages
        assert tuple(stages) == STAGES
        regions = [eqn for eqn in stages["partition"].jaxpr.eqns if eqn.primitive is region_p]
        names = [eqn.params["name"] for eqn in regions]
        assert list(dict.fromkeys(names)) == [plan.name for plan in stages["schedule"].plans]
        assert [kernel.name for kernel in half.compiled.kernels] == names
        for eqn, kernel in zip(regions, half.compiled.kernels):
            for buffers, atoms in ((kernel.inputs, eqn.invars), (kernel.outputs, eqn.outvars)):
                assert [(b.shape, b.dtype) for b in buffers] == [(v.aval.shape, v.aval.dtype) for v in atoms]


def test_stages_print() -> None:
    made = compiled(lambda x: x * 2, X, name="double")
    assert str(made.stages["schedule"]) == "kernel double   i: grid 240 by 128   warps 1\n  out0[(i // 40), (i % 40)]"
    assert str(made.stages["emit"]) == made.kernels[0].source
    nothing = compiled(lambda x: x, X)
    assert (str(nothing.stages["schedule"]), str(nothing.stages["emit"])) == ("no kernels", "# no kernels\n")


def test_a_stage_that_changes_the_program_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "normalize", lambda program, **_: jax.make_jaxpr(lambda x: x[0])(X))
    with pytest.raises(CompilerBug) as caught:
        compile_jaxpr(jax.make_jaxpr(lambda x: x + 1)(X), "broken")
    assert str(caught.value) == (
        "a stage changed the outputs: expected [((6, 40), dtype('float32'))], but found [((40,), dtype('float32'))]"
    )


def test_a_broken_plan_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Plan:
        plan = schedule(*args, **options)
        return replace(plan, axes=tuple(replace(a, block=3) for a in plan.axes))

    schedule = stages.schedule
    monkeypatch.setattr(stages, "schedule", broken)
    with pytest.raises(CompilerBug) as caught:
        compile_jaxpr(jax.make_jaxpr(lambda x: x + 1)(X), "broken")
    assert str(caught.value) == "kernel broken: the block of i is 3, not a power of two"


def test_smaller_schedules_compute_the_same() -> None:
    x = np.random.default_rng().standard_normal((5, 300)).astype(np.float32)
    made = compiled(jax.nn.softmax, x, name="softmax")
    (smaller,) = made.alternatives.values()
    assert len(smaller) == len(SHRINKS)
    for kernel in smaller:
        (unit,) = made.stages["emit"].units
        units = replace(made.stages["emit"], units=(replace(unit, kernel=kernel),))
        found = replace(made, stages={**made.stages, "emit": units}).run("interpret", False, x)
        assert differences(found, [jax.nn.softmax(x)], 1e-5) == [], kernel.source


def decaying(x: Any) -> Any:
    return jnp.exp(-lax.reduce_window(x * x, 0.0, lax.add, (1, 4097), (1, 1), "SAME"))


def test_leftovers_say_what_and_why() -> None:
    (left,) = leftovers_of(compiled(decaying, X))
    line = inspect.getsourcelines(decaying)[1] + 1
    assert left.microseconds == pytest.approx(DEFAULT_POLICY.products.launch_after_gap_us, abs=0.1)
    assert replace(left, microseconds=None) == Leftover(
        primitive="reduce_window_sum",
        equation="b:f32[6,40] = reduce_window_sum[window_dimensions=(1, 4097) window_strides=(1, 1) "
        "padding=((0, 0), (2048, 2048)) base_dilation=(1, 1) window_dilation=(1, 1)] a",
        where=f"test_pipeline.py:{line} (decaying)",
        why="its windows have 4,097 elements, and each of no more than 1,024 is read",
        nbytes=1920,
    )


def test_what_xla_does_for_nothing_is_no_leftover() -> None:
    made = compiled(lambda x, empty: (x.reshape(-1), empty * 2), X, np.zeros((0, 3), np.float32))
    assert (made.left_to_xla, made.kernels) == ((), ())
