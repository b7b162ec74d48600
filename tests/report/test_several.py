"""Why kernels are several, how they were planned, and what XLA alone would launch, in words and for programs."""

from __future__ import annotations

import json
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.kernel import Alone, Apart, Divided, Launches
from jaxpr2triton.report.explain import explain, explain_grad, explain_json
from jaxpr2triton.report.several import how_planned, over_devices, why_several
from tests.report.test_explain import ALL_FUSED, SORT, WITH_SORT, Program, X


def apart(kernel: str, *others: str, waits: bool = True, why: str = "a sum is needed first", where: str = "") -> Apart:
    return Apart(kernel, others, waits, why, where)


def test_kernels_of_one_reason_are_one_line() -> None:
    found = [
        apart("f_1", "f_0", where="model.py:3 (f)"),
        apart("f_2", "f_1", waits=False, why="they have different axes"),
        *(apart(f"f_{n}", why="the loop has to be over first", where="model.py:9 (f)") for n in range(3, 9)),
        apart("f_9", why="`sort` stays with XLA and comes first"),
    ]
    assert why_several(found, 100) == [
        "",
        "  why there are several kernels",
        "    f_1 after f_0: a sum is needed first, at model.py:3 (f)",
        "    f_2 beside f_1: they have different axes",
        "    f_3, f_4, f_5, f_6 and 2 more: the loop has to be over first, at model.py:9 (f)",
        "    f_9: `sort` stays with XLA and comes first",
    ]
    assert why_several((), 100) == []


def test_it_is_part_of_the_report() -> None:
    program = Program(WITH_SORT.kernels, (SORT,), (X,), (), (apart("more", "norms"),))
    lines = explain(program).splitlines()
    assert lines[-6:-3] == ["  why there are several kernels", "    more after norms: a sum is needed first", ""]
    assert explain_json(program)["apart"] == [
        {"kernel": "more", "others": ["norms"], "waits": True, "why": "a sum is needed first", "where": ""}
    ]


def test_how_it_was_planned_is_told_if_asked() -> None:
    steps = tuple(f"step {n}" for n in range(1, 11))
    assert how_planned(steps, 100)[:4] == ["", "  how it was planned", "     1 step 1", "     2 step 2"]
    planned = Program(ALL_FUSED.kernels, (), (X,), (), steps=steps[:1])
    assert explain(planned, why=True).endswith("\n\n  how it was planned\n    1 step 1")
    assert "planned" not in explain(planned) and explain_json(planned)["steps"] == ["step 1"]
    assert explain(ALL_FUSED, why=True).endswith("\n  how it was planned\n    at the first attempt")
    assert explain_grad(planned, planned, (), why=True).count("how it was planned") == 2


def test_programs_tell_how_they_were_planned() -> None:
    program = j2t.transpile(jnp.sin, jnp.ones(3))
    assert program.explain(why=True).startswith(program.explain() + "\n\n  how it was planned\n")
    pair = j2t.transpile(jnp.sin, jnp.ones(3), grad=0)
    assert pair.explain(why=True).count("how it was planned") == 2
    assert pickle.loads(pickle.dumps(program)).explain(why=True) == program.explain(why=True)


def test_which_axes_several_devices_may_split() -> None:
    split, met = Divided(("x[0]", "out[0]"), False, ""), Divided(("x[1]",), True, "")
    whole = Divided(tuple(f"w{n}[0]" for n in range(9)), True, "`sort` needs it whole")
    assert over_devices((split, met, whole), 100) == [
        "",
        "  over several devices",
        "    x[0], out[0]: shardable",
        "    x[1]: shardable, with one all-reduce",
        "    w0[0], w1[0], w2[0], w3[0], w4[0], w5[0] and 3 more: replicated: `sort` needs it whole",
    ]
    assert over_devices((), 100) == []
    program = Program(ALL_FUSED.kernels, (), (X,), (), divided=(split, met))
    assert explain(program, why=True).endswith("\n".join(over_devices((split, met), 100)))
    assert "devices" not in explain(program)
    assert explain_json(program)["devices"] == [
        {"axes": ["x[0]", "out[0]"], "split": True, "meet": False, "why_whole": ""},
        {"axes": ["x[1]"], "split": True, "meet": True, "why_whole": ""},
    ]


LOOPS = (("scan", Launches(3, 100)), ("while", Launches(2, None)))


@pytest.mark.parametrize(
    ("alone", "line"),
    [
        (Alone(1), "  XLA alone about 1 launch"),
        (Alone(5, (LOOPS[0],) * 2), "  XLA alone about 605 launches: 100 x 3 + 100 x 3 in loops, 5 beside them"),
        (Alone(0, (LOOPS[0],)), "  XLA alone about 300 launches: 100 x 3 in a loop"),
        (Alone(0, (LOOPS[0],) * 9), "  XLA alone about 2,700 launches"),
        (Alone(0, (LOOPS[1],)), "  XLA alone about 2 launches in each step of a `while`"),
        (
            Alone(2, LOOPS),
            "  XLA alone about 302 launches: 100 x 3 in a loop, 2 beside it, and about 2 launches in each step of",
        ),
    ],
    ids=str,
)
def test_what_xla_alone_would_launch(alone: Alone, line: str) -> None:
    program = Program(ALL_FUSED.kernels, (), (X,), (), alone=alone)
    assert explain(program).splitlines()[2] == line
    facts = json.loads(json.dumps(explain_json(program)))["xla_alone"]
    assert (facts["beside_loops"], facts["in_all"]) == (alone.beside_loops, alone.in_all)
    assert "XLA alone" not in explain(Program((), (SORT,), (X,), (), alone=alone))


def test_it_is_counted_from_the_program_as_it_was_traced() -> None:
    def chains(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.tanh(c @ c), c.sum()), jnp.sin(x), None, length=50)

    program = j2t.transpile(chains, jax.ShapeDtypeStruct((8, 8), jnp.float32))
    assert len(program.kernels) == 1
    assert "\n  XLA alone about 251 launches: 50 x 5 in a loop, 1 beside it\n" in program.explain()
