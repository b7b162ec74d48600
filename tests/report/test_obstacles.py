"""All that keeps a loop out of kernels is said at once, each with what it would take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.errors import NotFusible
from jaxpr2triton.ir.kernel import Leftover
from jaxpr2triton.plan.decisions import Decisions, Reach
from jaxpr2triton.report.reasons import leftover_of, obstacles_of
from tests.policies import planned_with

X = np.ones((100, 9), np.float32)


def called(x: Any) -> Any:
    return jax.pure_callback(lambda a: np.asarray(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def with_three_reasons(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = called(c * x)
        y = jnp.fft.fft(c).real
        c = lax.fori_loop(0, 3, lambda k, a: a + lax.linalg.hessenberg(jnp.outer(a, a))[0][0] + k, c)
        return called(c), y

    return lax.scan(step, c, xs)


def left_of(fn: Any, *args: Any) -> Leftover:
    (left,) = j2t.transpile(fn, *args).leftovers
    return left


def test_all_reasons_of_a_loop_are_known_and_those_of_the_loops_in_it() -> None:
    left = left_of(with_three_reasons, X[0], X)
    found = {each.why: (each.takes, {other.primitive for other in left.obstacles if other.why == each.why})
             for each in left.obstacles}  # fmt: skip
    assert found == {
        "`pure_callback` calls Python": ("it stays with XLA by design", {"pure_callback"}),
        "the dtype complex64 is not supported in a kernel": (
            "it would have to be two arrays of real numbers", {"convert_element_type", "fft", "real"},
        ),
        "there is no rule for the primitive `hessenberg`": ("", {"hessenberg"}),
    }  # fmt: skip
    assert all(each.where.startswith("test_obstacles.py:") for each in left.obstacles)
    assert left.why.endswith("(called): `pure_callback` calls Python (the first of 3 reasons)")


def test_they_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    lines = j2t.transpile(with_three_reasons, X[0], X).explain().splitlines()
    first = lines.index("  left to XLA") + 1
    line = with_three_reasons.__code__.co_firstlineno
    assert lines[first : first + 3] == [
        f"    scan at test_obstacles.py:{line + 7} (with_three_reasons): no kernel can hold its body, for 3 reasons",
        f"      2 x pure_callback at test_obstacles.py:{line - 3} (called): `pure_callback` calls Python; "
        "it stays with XLA by design",
        f"      convert_element_type, fft, real at test_obstacles.py:{line + 3} (step): the dtype complex64 is not "
        "supported in a kernel; it would have to be two arrays of real numbers",
    ]


def test_one_reason_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = j2t.transpile(lambda x: lax.while_loop(lambda c: c[0] < 9, called, x), X[0]).explain()
    assert "\n    while at test_obstacles.py" in text
    assert "`pure_callback` calls Python; it stays with XLA by design\n" in text and "reasons" not in text


def test_what_is_left_outside_of_loops_says_what_it_takes() -> None:
    left = left_of(lambda x: x + 1j, X.astype(np.complex64))
    assert (left.takes, left.obstacles) == ("it would have to be two arrays of real numbers", ())


def test_strict_gives_the_first_and_the_number_of_reasons() -> None:
    with pytest.raises(NotFusible, match=r"calls Python \(the first of 3 reasons\)"):
        j2t.transpile(with_three_reasons, X[0], X, strict=True)


def test_a_state_that_is_too_large_is_given_in_numbers() -> None:
    def step(c: Any, x: Any) -> Any:
        c = jnp.tanh(c @ w + x - c.mean())
        return c, c.sum()

    w = np.zeros((307, 307), np.float32)  # no number of programs has as many rows each
    left = left_of(lambda c, xs: lax.scan(step, c, xs), w, np.zeros((5, 307), np.float32))
    assert left.why == (
        "one program cannot hold the state of the loop: it carries 94,250 numbers, and 40,632 fit; "
        "it would have to be split"
    )
    w = np.zeros((509, 509), np.float32)

    def longest(c: Any, x: Any) -> Any:
        return jnp.tanh(jnp.sin(w * c).max(1) + x), c.sum()

    left = left_of(lambda c, xs: lax.scan(longest, c, xs), np.zeros(509, np.float32), np.zeros((5, 509), np.float32))
    assert left.why == (
        "one program cannot hold the state of the loop: it carries 509 numbers and reads 259,590 in "
        "each step, and 150,000 fit; it would have to be split"
    )


def test_the_equation_of_a_loop_is_as_the_user_knows_it() -> None:
    assert left_of(with_three_reasons, X[0], X).equation == "c:f32[9] d:f32[100,9] = scan[length=100] a b"
    left = left_of(lambda x: lax.while_loop(lambda c: c[0] < 9, called, x), X[0])
    assert (left.primitive, left.equation) == ("while", "c:bool[] d:f32[9] = while a b")


def test_a_loop_that_is_left_as_it_was_written_has_no_obstacles() -> None:
    """Its body was not rewritten, so much of it has no rule as it stands."""
    program = j2t.transpile(lambda x: lax.scan(lambda c, y: (jnp.sort(c + y), c), x[0], x), X)
    (scan,) = [eqn for eqn in program.stages["trace"].jaxpr.eqns if eqn.primitive.name == "scan"]
    assert len(program.kernels) == 1 and len(obstacles_of(scan)) == 1
    compiled = replace(program.compiled, decisions=Decisions(reach=Reach.NO_LOOPS, because="it is not to be"))
    assert leftover_of(scan, "", compiled).obstacles == ()


def test_what_could_be_in_a_kernel_but_is_part_of_something_else() -> None:
    program = j2t.transpile(jnp.sin, X)
    (eqn,) = program.stages["trace"].jaxpr.eqns
    assert leftover_of(eqn, "", program.compiled).why == "it is part of a computation that stays with XLA"


def test_a_loop_of_a_very_long_step() -> None:
    def step(c: Any, _: Any) -> Any:
        for _ in range(20):
            c = jnp.sin(c) * 1.01
        return c, None

    with planned_with(cuts={"steps": 2}):
        left = left_of(lambda x: lax.scan(step, x, None, length=5)[0], X[0])
    assert left.why == "it is 40 computations long, too many for one kernel"
