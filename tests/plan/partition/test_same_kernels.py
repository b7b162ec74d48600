"""Regions that are the same but for names are one kernel, which is launched for each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.pipeline import stages
from tests.programs import windows

LAYERS = 4
ROWS = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
WEIGHTS = [np.random.default_rng(n).normal(size=(8, 8)).astype(np.float32) for n in range(LAYERS)]


def network(x: Any, weights: Any) -> Any:
    for w in weights:
        x = jax.nn.softmax(x @ w) * 2
    return x


def loops(xs: Any, weights: Any) -> Any:
    for w in weights:
        xs = windows(jax.lax.scan(lambda c, x, w=w: ((c + x * w).sum(0),) * 2, xs[0], xs)[1])
    return xs


def test_layers_are_one_kernel() -> None:
    program = j2t.transpile(network, ROWS, WEIGHTS)
    assert [kernel.name for kernel in program.kernels] == ["network"] * LAYERS
    assert program.source.count("def network(") == str(program.stages["emit"]).count("def network(") == 1
    assert "#   in 4 launches of one kernel: network (4 times)\n" in program.source
    assert len(program.stages["schedule"].plans) == 1
    np.testing.assert_allclose(program(ROWS, WEIGHTS), jax.jit(network)(ROWS, WEIGHTS), 1e-5)


def test_layers_of_loops_are_one_kernel() -> None:
    program = j2t.transpile(loops, ROWS, WEIGHTS)
    assert [kernel.name for kernel in program.kernels] == ["loops"] * LAYERS
    np.testing.assert_allclose(program(ROWS, WEIGHTS), jax.jit(loops)(ROWS, WEIGHTS), 1e-5)


def test_gradients_of_layers_agree() -> None:
    def loss(weights: Any) -> Any:
        return (network(rows, weights) ** 2).sum()

    rows, weights = jnp.tile(ROWS, (1, 20)), [jnp.tile(w, (20, 20)) for w in WEIGHTS]  # too wide to be made again
    program = j2t.transpile(loss, weights, grad=0)
    assert len(set(program.backward.kernels)) < len(program.backward.kernels)
    value, gradients = program(weights)
    expected, wanted = jax.jit(jax.value_and_grad(loss))(weights)
    np.testing.assert_allclose(value, expected, 1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), gradients, wanted)


def test_the_report_counts_launches() -> None:
    program = j2t.transpile(network, ROWS, WEIGHTS)
    text = program.explain()
    assert "  launches  4, of 1 kernel, and XLA for 4 equations\n" in text
    assert "\n  network (4 times)  " in text
    facts = program.explain_json()
    assert [(kernel["name"], kernel["launches"]) for kernel in facts["kernels"]] == [("network", LAYERS)]
    assert facts["bytes_read"] == LAYERS * facts["kernels"][0]["bytes_read"]


def test_what_differs_is_another_kernel() -> None:
    def uneven(x: Any) -> Any:
        return windows(windows(windows(jnp.sin(x) * 2.0) * 3.0) * 2.0)

    program = j2t.transpile(uneven, ROWS)
    assert [kernel.name for kernel in program.kernels] == ["uneven_0", "uneven_1", "uneven_2"]


def test_one_mistake_costs_all_launches_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.delenv("J2T_RAISE", raising=False)
    monkeypatch.setattr(stages, "emit", fails)
    with pytest.warns(j2t.BugWarning):
        program = j2t.transpile(lambda x: network(x, WEIGHTS[:3]), ROWS[:8])
    assert program.kernels == ()
    assert sum(left.primitive == "exp" for left in program.leftovers) == 3


def test_smaller_schedules_are_of_kernels_not_of_launches() -> None:
    alternatives = j2t.transpile(network, ROWS, WEIGHTS).compiled.alternatives
    assert list(alternatives) == ["network"] and alternatives["network"]
