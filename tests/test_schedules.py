"""Schedules given out and taken back: the same source in another process, other blocks, and what does not fit."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from tests.contraction_programs import PROGRAMS as CONTRACTIONS
from tests.loop_programs import PROGRAMS as LOOPS
from tests.programs import PROGRAMS

ROOT = Path(__file__).parent.parent
X = np.random.default_rng(0).normal(size=(64, 100)).astype(np.float32)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(jnp.sin(x))


def recurrent(x: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = jnp.tanh(0.5 * h + row)
        return h, jnp.sin(h)

    return lax.scan(step, jnp.zeros(x.shape[1:]), x)


def schedules_in(found: Any) -> Iterator[dict[str, Any]]:
    for half in (found, found.get("forward", {}), found.get("backward", {})):
        yield from (kernel["schedule"] for kernel in half.get("kernels", ()))


def once(function: Any, *args: Any, **options: Any) -> Any:
    """Without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", j2t.ScheduleWarning)
        return j2t.transpile(function, *args, **options)


# the same again

NAMED = {f"{each.name}-{kind}": (each, kind) for each in (*PROGRAMS, *LOOPS) for kind in ("forward", "gradient")}
NAMED = {name: (each, kind) for name, (each, kind) in NAMED.items() if kind == "forward" or each.grad is not None}


@pytest.mark.parametrize("name", NAMED)
def test_every_named_program_is_replayed(name: str) -> None:
    """Through text, as a file is; none is searched for."""
    program, kind = NAMED[name]
    with program.precision():
        function, args = program.fn if kind == "forward" else program.gradient(), program.args(np.random.default_rng(0))
        first = once(function, *args)
        given = json.loads(json.dumps(first.explain_json()))
        again = once(function, *args, schedules=given)
    assert again.source == first.source and all(plan.recorded for plan in again.stages["schedule"].plans)
    assert json.loads(json.dumps(again.explain_json())) == given


def test_both_halves_of_a_gradient_are_replayed() -> None:
    def loss(x: Any) -> Any:
        return recurrent(x)[0].sum()

    first = once(loss, X, grad=0)
    again = once(loss, X, grad=0, schedules=first.explain_json())
    for half, before in ((again.forward, first.forward), (again.backward, first.backward)):
        assert half.source == before.source and all(plan.recorded for plan in half.stages["schedule"].plans)


@pytest.mark.parametrize("contraction", CONTRACTIONS, ids=lambda each: str(each.name))
def test_contractions_are_replayed(contraction: Any) -> None:
    args = contraction.args()
    first = once(contraction.whole(), *args, contractions="triton")
    again = once(contraction.whole(), *args, contractions="triton", schedules=first.explain_json())
    assert again.source == first.source and all(plan.recorded for plan in again.stages["schedule"].plans)


def test_in_another_process(tmp_path: Path) -> None:
    """By the command line, as a user would."""
    module = tmp_path / "model.py"
    module.write_text(
        "import jax, jax.numpy as jnp\nfrom jax import lax\n\n"
        "def f(x):\n    return lax.scan(lambda h, r: (jnp.tanh(h @ jnp.ones((16, 16)) + r), h), jnp.zeros(16), x)\n"
    )
    args = ["model.py:f", "f32[40,16]"]

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "jaxpr2triton", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        assert done.returncode == 0 and "ignored" not in done.stderr, done.stderr
        return done.stdout

    (tmp_path / "schedules.json").write_text(run("explain", *args, "--json"))
    assert run("dump", *args, "--schedule", "schedules.json") == run("dump", *args)


def test_roles_that_were_asked_for() -> None:
    first = once(softmax, X, roles={"col": "loop"})
    assert once(softmax, X, schedules=first.explain_json()).source == first.source != once(softmax, X).source


# another one


@pytest.mark.parametrize("function", [softmax, recurrent])
def test_other_blocks_and_warps(function: Any) -> None:
    given = once(function, X).explain_json()
    (schedule,) = schedules_in(given)
    rows = next(axis for axis in schedule["axes"] if axis[2] == "grid")
    rows[3], schedule["num_warps"] = (4 if rows[3] != 4 else 8), 2
    made = once(function, X, schedules=given)
    (kernel,) = made.kernels
    assert kernel.num_warps == 2 and [rows[3]] == [axis.block for axis in kernel.axes if axis.name == rows[0]]
    found = j2t.fuse(function, backend="interpret", schedules=given)(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, jax.jit(function)(X))


# what does not fit


def damaged(change: Any) -> Any:
    given = copy.deepcopy(once(recurrent, X).explain_json())
    (schedule,) = schedules_in(given)
    change(schedule)
    return given


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda each: each.pop("axes"), "it has no 'axes'"),
        (lambda each: each.update(num_warps="4"), "'4' is not of type int"),
        (lambda each: each.update(num_warps=3), "a program cannot have 3 warps"),
        (lambda each: each.update(num_stages=100), "a program cannot have 100 stages"),
        (
            lambda each: each["axes"][0].__setitem__(3, 3),
            "the schedule of recurrent is ignored: axis i cannot have a block of 3",
        ),
        (lambda each: each["axes"][0].__setitem__(2, "row"), "'row' is not a valid Role"),
        (
            lambda each: each["axes"][0].__setitem__(0, "no"),
            "it is for axes no: grid 100 by 32, t: loop 64 by 1, and the kernel has i: grid 100 by 32, t: loop 64 by 1",
        ),
        (lambda each: each["axes"].pop(), "it is for axes"),
        (
            lambda each: each["axes"].append(7),
            "schedules: schedule 0 is ignored: 7 is no axis: a name, a size, a role and a block",
        ),
        (lambda each: each.update(form="cube"), "it is for axes"),
        (lambda each: each.update(roles={"col": "pillar"}), "'pillar' is not a valid Role"),
        (lambda each: each.update(key=7), "7 is not of type str"),
        (lambda each: each.update(key="0" * 32), "has no such kernel"),
    ],
)
def test_a_damaged_one_is_ignored_with_a_word(change: Any, said: str) -> None:
    with pytest.warns(j2t.ScheduleWarning, match="ignored") as told:
        made = j2t.transpile(recurrent, X, schedules=damaged(change))
    assert any(said in str(each.message) for each in told), [str(each.message) for each in told]
    assert made.source == once(recurrent, X).source


def test_one_of_another_program_is_ignored_with_a_word() -> None:
    others = once(softmax, X).explain_json()
    with pytest.warns(j2t.ScheduleWarning) as caught:
        made = j2t.transpile(recurrent, X, schedules=others)
    assert [str(each.message) for each in caught] == [
        "1 schedule of softmax ignored: recurrent has no such kernel, on this device and in this version"
    ]
    assert made.source == once(recurrent, X).source


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "schedules.json"
    with pytest.raises(j2t.UserError) as caught:
        j2t.transpile(softmax, X, schedules=path)
    assert str(caught.value) == f"schedules={str(path)!r} cannot be read: {caught.value.__cause__}"
    for text, ignored in (
        ("[7", f"{path} is ignored: it is no JSON (Expecting ',' delimiter: line 1 column 3 (char 2))"),
        ("[]", f"{path} is ignored: there is no schedule in it"),
    ):
        path.write_text(text)
        with pytest.warns(j2t.ScheduleWarning) as warned:
            j2t.transpile(softmax, X, schedules=path)
        assert [str(each.message) for each in warned] == [ignored]
    path.write_text(json.dumps(list(schedules_in(once(softmax, X, roles={"col": "loop"}).explain_json()))))
    assert once(softmax, X, schedules=path).source == once(softmax, X, roles={"col": "loop"}).source
