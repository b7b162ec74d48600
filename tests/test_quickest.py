"""`schedule="compile"`: the best schedules by estimate are compiled, and what their machine code takes decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.cli.main import main
from jaxpr2triton.hardware import target_named
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.pipeline import quickest
from jaxpr2triton.pipeline.quickest import comparable, quickest_of


def rnn(h: Any, xs: Any, u: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ u)
        return h, h

    return lax.scan(step, h, xs)


def some(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32) / 4


ARGS = some(64, 16), some(5, 64, 16), some(16, 16)
SM_90 = target_named("sm_90")


def the_plan() -> Any:
    (plan,) = j2t.transpile(rnn, *ARGS, for_target="sm_90").stages["schedule"].plans
    return plan


def test_the_quickest_of_the_best_three_is_chosen() -> None:
    (kernel,) = j2t.transpile(rnn, *ARGS, for_target="sm_90", schedule="compile").kernels
    assert kernel.choice is not None
    least, *others = kernel.choice.compiled
    assert len(others) == 2 and least <= min(others)
    assert cycles_of(kernel, SM_90).whole == pytest.approx(least)


def test_the_estimate_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has the worst one first, another one is taken."""
    plan, schedules = the_plan(), quickest.schedules
    monkeypatch.setattr(quickest, "schedules", lambda *args: schedules(*args)[::-1])
    best = quickest_of(plan)
    assert (best.axes, best.num_warps) == (quickest_of(plan).axes, quickest_of(plan).num_warps)
    assert best.choice is not None and best.choice.compiled == tuple(sorted(best.choice.compiled))
    monkeypatch.setattr(quickest, "schedules", schedules)
    assert quickest_of(plan).axes == best.axes and quickest_of(plan).num_warps == best.num_warps


def test_what_is_refused_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = the_plan()

    def refused(*_: Any) -> Any:
        raise j2t.KernelRefused("too large")

    monkeypatch.setattr(quickest, "cycles_of", refused)
    assert quickest_of(plan) is plan


def test_a_mistake_costs_the_comparison_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Any) -> Any:
        raise KeyError(plan.name)

    plain = j2t.transpile(rnn, *ARGS, for_target="sm_90")
    monkeypatch.setattr(quickest, "quickest_of", broken)
    monkeypatch.delenv("J2T_RAISE")
    with pytest.warns(j2t.BugWarning, match="kernel rnn has a schedule by estimate"):
        program = j2t.transpile(rnn, *ARGS, for_target="sm_90", schedule="compile")
    assert program.source == plain.source


def test_whole_kernels_are_compared_where_all_have_an_end() -> None:
    (kernel,) = j2t.transpile(rnn, some(64, 16), some(500, 64, 16), some(16, 16), for_target="sm_90").kernels
    found = cycles_of(kernel, SM_90)
    assert found.whole is not None and found.a_step is not None and found.whole > 100 * found.a_step > 0
    assert comparable([found, found]) == [found.whole, found.whole]
    assert comparable([found, replace(found, whole=None)]) == [found.a_step, found.a_step]


def test_values_are_the_same() -> None:
    fused = j2t.fuse(rnn, backend="interpret", schedule="compile")
    ours, theirs = (lambda u, fn=fn: fn(*ARGS[:2], u)[1].sum() for fn in (fused, rnn))
    for mine, of_jax in ((fused(*ARGS), rnn(*ARGS)), (jax.grad(ours)(ARGS[2]), jax.grad(theirs)(ARGS[2]))):
        jax.tree.map(close, mine, of_jax)


def close(found: Any, expected: Any) -> None:
    """Sums of 64 numbers in another order: what they lose is measured by the largest of the results."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    program = j2t.transpile(rnn, *ARGS, for_target="sm_90", schedule="compile")
    (kernel,) = program.kernels
    assert kernel.choice is not None
    least, *others = (f"{cycles:,.0f}" for cycles in kernel.choice.compiled)
    told = f"rnn: of 3 schedules compiled the one of {least} cycles, the others take {' and '.join(others)}"
    assert any(told in step for step in program.summary.steps)
    command = f"explain {__file__}:rnn f32[64,16] f32[5,64,16] f32[16,16] --why --schedule compile --target sm_90"
    assert main(command.split()) == 0
    assert "of 3 schedules compiled" in " ".join(capsys.readouterr().out.split())


def test_without_loops_there_is_nothing_to_choose() -> None:
    (kernel,) = j2t.transpile(jnp.tanh, some(3, 4), for_target="sm_90", schedule="compile").kernels
    assert kernel.choice is None


def test_a_misspelt_choice() -> None:
    with pytest.raises(j2t.UserError, match=r"schedule='comp' is not a choice\n  try  one of estimate, compile"):
        j2t.fuse(rnn, schedule="comp")


@pytest.mark.parametrize("fn", [rnn, lambda h, xs, u: h + 1])
def test_a_target_without_a_model(fn: Any) -> None:
    with pytest.raises(j2t.UserError, match="cycles are not modelled for gfx942"):
        j2t.transpile(fn, *ARGS, for_target="gfx942", schedule="compile")
