"""Every stage preserves every named program, and the pipeline records and checks what each made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from jaxpr2triton import pipeline
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.tracing import run
from jaxpr2triton.pipeline import STAGES, Kernels, Plans, compile_jaxpr
from tests.compiling import RUNNABLE, compiled, differences, halves_of

JAXPR_STAGES = ("normalize", "partition")
X = np.ones((6, 40), np.float32)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_stage_preserves_every_program(name: str) -> None:
    for half in halves_of(name):
        with half.enable_x64():
            stages, inputs = half.compiled.stages, half.inputs
            expected = jax.jit(lambda *args, stages=stages: run(stages["trace"], *args))(*inputs)
            for stage in JAXPR_STAGES:
                found = jax.jit(lambda *args, made=stages[stage]: run(made, *args))(*inputs)
                assert differences(found, expected, half.digits) == [], f"{half.compiled.name} after {stage}"
            found = half.compiled.run("interpret", False, *inputs)
            assert differences(found, expected, half.digits) == [], f"kernels of {half.compiled.name}"


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_each_stage_made_fits_the_next(name: str) -> None:
    for half in halves_of(name):
        stages = half.compiled.stages
        assert list(stages) == [stage for stage, _ in STAGES]
        regions = [eqn for eqn in stages["partition"].jaxpr.eqns if eqn.primitive is region_p]
        assert [eqn.params["name"] for eqn in regions] == [plan.name for plan in stages["schedule"].plans]
        assert [kernel.name for kernel in half.compiled.kernels] == [plan.name for plan in stages["schedule"].plans]
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
    def broken(program: Any, name: str) -> Any:
        return jax.make_jaxpr(lambda x: x[0])(X)

    monkeypatch.setattr(pipeline, "STAGES", (("trace", lambda program, name: program), ("normalize", broken)))
    with pytest.raises(CompilerBug) as caught:
        compile_jaxpr(jax.make_jaxpr(lambda x: x + 1)(X), "broken")
    assert str(caught.value) == (
        "a stage changed the outputs: expected [((6, 40), dtype('float32'))], but found [((40,), dtype('float32'))]"
    )


def test_a_broken_plan_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, name: str) -> Plans:
        plans = dict(STAGES)["schedule"](program, name)
        (plan,) = plans.plans
        return Plans(program, (replace(plan, axes=tuple(replace(a, block=3) for a in plan.axes)),))

    monkeypatch.setattr(pipeline, "STAGES", (*STAGES[:3], ("schedule", broken), STAGES[4]))
    with pytest.raises(CompilerBug) as caught:
        compile_jaxpr(jax.make_jaxpr(lambda x: x + 1)(X), "broken")
    assert str(caught.value) == "kernel broken: the block of i is 3, not a power of two"


def test_smaller_schedules_compute_the_same() -> None:
    x = np.random.default_rng().standard_normal((5, 300)).astype(np.float32)
    made = compiled(jax.nn.softmax, x, name="softmax")
    (smaller,) = made._alternatives
    assert len(smaller) == len(pipeline.SHRINKS)
    for kernel in smaller:
        kernels = Kernels(made.stages["schedule"], (kernel,))
        found = replace(made, stages={**made.stages, "emit": kernels}).run("interpret", False, x)
        assert differences(found, [jax.nn.softmax(x)], 1e-5) == [], kernel.source


def test_leftovers_say_what_and_why() -> None:
    (half, _) = halves_of("sort_inside")
    (left,) = half.compiled.leftovers
    assert left.primitive == "sort" and left.equation.startswith("b:f32[4,9] = sort[") and left.equation.endswith(" a")
    assert left.where.endswith("(sort_inside)") and left.where.startswith("programs.py:")
    assert left.why == "there is no rule for the primitive `sort`"
