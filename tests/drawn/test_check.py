"""The checker itself: it sees what is wrong, forgives what rounding does, and its programs print, repeat and shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.launch.call import primitive
from jaxpr2triton.launch.interpret.interpret import run_interpreted
from jaxpr2triton.pipeline import stages
from tests.drawn import check as checking
from tests.drawn import reduce
from tests.drawn.check import Mismatch, check, check_type
from tests.drawn.choices import Random
from tests.drawn.families import ALL
from tests.drawn.generator import drawn_program
from tests.drawn.loop_families import drawn_loop_program
from tests.drawn.loops import Branch, Carry, Choice, Loop
from tests.drawn.oracle import answers
from tests.drawn.program import Input, Line, Program
from tests.drawn.transforms import TRANSFORMS, arguments, transformed

SOFTMAX = Program(
    inputs=(Input("x", (5, 17), "float32", "normal"),),
    lines=(Line("y", "jax.nn.softmax(x, 1)", ("x",)), Line("n", "lax.argmax(x, 1, jnp.int32)", ("x",))),
    outputs=("y", "n"),
    transform="grad",
)

SUMS = Program(
    inputs=(Input("x", (3, 2), "float32", "whole"), Input("y", (2,), "float32", "whole")),
    lines=(
        Loop(
            *("scan", "0", "3"),
            carries=(Carry("c", "y", "d", "last"), Carry("e", "y", "g", "other")),
            lines=(
                Line("b", "jnp.sin(a)", ("a",)),
                Line("d", "c + b", ("c", "b")),
                Line("g", "e * 2", ("e",)),
            ),
            xs=(("a", "x"),),
            ys=(("all", "d"),),
            reverse=True,
        ),
        Line("z", "jnp.tanh(last)", ("last",)),
    ),
    outputs=("z", "all", "other"),
)


@pytest.mark.parametrize("error", [1e-4, np.nan, np.inf])
def test_one_wrong_element_is_seen(error: float) -> None:
    def slightly_wrong(kernel: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = run_interpreted(kernel, arrays)
        results[0].flat[-1] += np.asarray(error if results[0].dtype.kind == "f" else 1, results[0].dtype)
        return results

    assert check(SOFTMAX).compared == 5 * 17 + 5 + 5 * 17
    with mock.patch.object(primitive, "run_interpreted", slightly_wrong), pytest.raises(Mismatch, match="output "):
        check(SOFTMAX)


def test_a_wrong_type_is_seen() -> None:
    weak = jax.jit(lambda: 2.5)()
    check_type(weak, weak, 0)
    with pytest.raises(Mismatch, match="^output 0: weak_type False, expected True$"):
        check_type(jnp.float32(2.5), weak, 0)
    with pytest.raises(Mismatch, match="^output 1: dtype float16, expected float32$"):
        check_type(jnp.float16(2.5), weak, 1)
    with pytest.raises(Mismatch, match=r"^output 2: shape \(1,\), expected \(\)$"):
        check_type(jnp.ones(1), weak, 2)


def test_what_rounding_decides_is_not_compared() -> None:
    def f(x: Any) -> Any:
        thirds = x / 3
        return jnp.floor(thirds * 3), thirds > 0, jnp.sum(x * 1e8) - jnp.sum(x[::-1] * 1e8), thirds

    x = np.array([-2.0, 1.0, 5.0, 1.5], np.float32)
    floor, sign, cancelled, exact = answers(f, [x], 0)
    assert floor.allowed[:3].min() >= 1 and floor.allowed[3] < 1e-5
    assert not sign.unstable.any() and sign.value.tolist() == [False, True, True, True]
    assert 1 < float(cancelled.allowed) < 1e5
    assert (exact.allowed < 1e-5).all() and np.allclose(exact.value, x.astype(np.float64) / 3, rtol=1e-12)


def test_digits_that_a_kernel_may_keep_are_not_compared() -> None:
    def f(x: Any) -> Any:
        return (x * x) * x == x * (x * x), lax.abs(x) == x, lax.bitcast_convert_type(x * 0, jnp.int16)

    x = jnp.asarray([1.0, 1.0078125, 1.0390625, np.nan], jnp.bfloat16)
    cubes, same, bits = answers(f, [x], 0)
    assert not same.unstable.any()
    assert bits.unstable.tolist() == [False, False, False, True]
    assert cubes.unstable.tolist() == [False, True, True, False]


def test_a_sum_of_zeros_is_either_zero() -> None:
    """XLA begins with 0.0; a kernel that adds up two terms that are -0.0 does not."""

    def f(x: Any) -> Any:
        return lax.bitcast_convert_type(x.sum(1), jnp.int32), lax.bitcast_convert_type(x, jnp.int32)

    of_sums, of_terms = answers(f, [np.array([[-0.0, -0.0], [1.0, 2.0]], np.float32)], 0)
    assert of_sums.unstable.tolist() == [True, False]
    assert not of_terms.unstable.any()


def test_sums_of_whole_numbers_are_exact() -> None:
    (answer,) = answers(lambda x: jnp.sum(x) == 6.0, [np.array([1.0, 2.0, 3.0], np.float32)], 0)
    assert not answer.unstable.any() and bool(answer.value)


def test_infinities_of_narrow_dtypes() -> None:
    big = np.array([60000.0, 1.0], np.float16)
    doubled, back = answers(lambda x: (x * 2, lax.abs(x)), [big], 0)
    assert doubled.unstable.tolist() == [True, False]  # a kernel holds it as float32, and may go on from there
    assert not back.unstable.any()


def test_products_that_a_compiler_joins_with_a_sum() -> None:
    """z - max(z) is 0 at the maximum, but for a compiler that computes x * x - max(z) at once."""
    x = np.array([0.1, 0.3], np.float32)

    def f(x: Any) -> Any:
        z = x * x
        return z - z.max()

    (apart,), (joined,) = answers(f, [x], 0), answers(f, [x], 0, contracted=True)
    fused = float(x[1]) ** 2 - float(np.float32(x[1] * x[1]))
    assert apart.allowed[1] < abs(fused) < joined.allowed[1] < 1e-6


def test_programs_print_as_python_and_repeat() -> None:
    for number in range(20):
        program = drawn_program(Random(1, number), ALL, tuple(TRANSFORMS))
        scope = {"Program": Program, "Input": Input, "Line": Line}
        exec(str(program), scope)
        assert scope["PROGRAM"] == program == drawn_program(Random(1, number), ALL, tuple(TRANSFORMS))


def test_every_family_is_drawn_and_every_program_traces() -> None:
    texts = []
    for number in range(100):
        program = drawn_program(Random(2, number), ALL, tuple(TRANSFORMS))
        texts.append(program.function_text())
        with jax.enable_x64(program.x64):
            args = arguments(program, 0)
            assert jax.eval_shape(transformed(program, lambda f: f), *args)
    everything = "".join(texts)
    for word in ("pad", "concatenate", "reshape", "rev", "softmax", "argm", "iota", "select", "bits", "cumsum"):
        assert word in everything, word


def test_a_mistake_is_seen() -> None:
    def mistaken(jaxpr: Any, name: str, *rest: Any) -> Any:
        raise CompilerBug("no reason")

    with mock.patch.object(checking, "compile_jaxpr", mistaken), pytest.raises(CompilerBug, match="no reason"):
        check(SOFTMAX)
    broken = mock.patch.object(stages, "emit", lambda plan, graph: mistaken(plan, ""))
    with broken, pytest.raises(CompilerBug) as problem:
        check(SUMS)
    assert reduce.failure(problem.value) == "CompilerBug in test_check.py:mistaken"


def test_loops_are_counted() -> None:
    outcome = check(SUMS)
    assert outcome.fused_loops == 1 and not outcome.loops_left
    sorting = Line("b", "jnp.real(jnp.fft.fft(a)).astype(a.dtype)", ("a",))
    (loop, tanh) = SUMS.lines
    assert isinstance(loop, Loop)
    outcome = check(SUMS.replace(lines=(replace(loop, lines=(sorting, *loop.lines[1:])), tanh)))
    assert outcome.fused_loops == 0
    ((why, count),) = outcome.loops_left.items()
    assert count == 1 and "complex64" in why


def test_what_rounding_decides_in_loops_is_not_compared() -> None:
    def f(x: Any) -> Any:
        def unfinished(state: Any) -> Any:
            return (state[1] < 5) & (state[0] / 3 * 3 < 2)

        steps = jax.vmap(lambda x: lax.while_loop(unfinished, lambda s: (s[0] + 1 / 3, s[1] + 1), (x, 0))[1])(x)
        total = lax.scan(lambda c, x: (c + x / 3, c), 0.0, x)[0]
        return steps, total, lax.cond(total > 1e-3, lambda: 1, lambda: 2)

    steps, total, chosen = answers(f, [np.array([1.0, 1.5, 10.0], np.float32)], 0)
    assert steps.value.tolist() == [3, 2, 0] and steps.unstable.tolist() == [True, False, False]
    assert np.isclose(total.value, 12.5 / 3, rtol=1e-12) and total.allowed < 1e-4
    assert chosen.value == 1 and not chosen.unstable


def test_loops_print_as_python_and_repeat() -> None:
    scope: dict[str, Any] = {c.__name__: c for c in (Program, Input, Line, Loop, Carry, Choice, Branch)}
    texts = []
    for number in range(100):
        program = drawn_loop_program(Random(1, number), tuple(TRANSFORMS))
        exec(str(program), scope)
        assert scope["PROGRAM"] == program == drawn_loop_program(Random(1, number), tuple(TRANSFORMS))
        texts.append(program.function_text())
        with jax.enable_x64(program.x64):
            jax.eval_shape(transformed(program, lambda f: f), *arguments(program, 0))
    everything = "".join(texts)
    for word in ("scan", "while_loop", "fori_loop", "cond", "switch", "reverse=True", ".at[", "@", "length=0"):
        assert word in everything, word


def test_a_failing_loop_becomes_small() -> None:
    def fails_on_sin(candidate: Program) -> None:
        jax.eval_shape(candidate.function, *candidate.arrays(0))
        assert "sin" not in candidate.function_text()

    def fails_on_sin_in_a_loop(candidate: Program) -> None:
        if "scan" in candidate.function_text():
            fails_on_sin(candidate)

    assert made_small(SUMS, fails_on_sin).function_text() == ("def f(a):\n    b = jnp.sin(a)\n    return (b, )\n")
    assert made_small(SUMS, fails_on_sin_in_a_loop).function_text() == (
        "def f(y, x_a):\n"
        "    def step0(carry, xs):\n"
        "        (c,) = carry\n"
        "        b = jnp.sin(x_a)\n"
        "        return (b,), ()\n"
        "    (last,), () = lax.scan(step0, (y,), None, length=1, reverse=False, unroll=1)\n"
        "    return (last, )\n"
    )


def made_small(program: Program, fails: Any) -> Program:
    with mock.patch.object(reduce, "check", lambda candidate, backend: fails(candidate)):
        with pytest.raises(AssertionError) as problem:
            fails(program)
        return reduce.reduced(program, reduce.failure(problem.value))


def test_a_failing_program_becomes_small() -> None:
    lines = tuple(
        Line(f"v{n}", f"jnp.{name}({x})", (x,))
        for n, (name, x) in enumerate(zip(("sin", "tanh", "cos"), ("x", "v0", "v1")))
    )
    program = Program((Input("x", (3,), "float32", "whole"),), lines, ("v2", "v0"), "grad", small=True, seed=3)

    def fails_on_tanh(candidate: Program) -> None:
        assert "tanh" not in candidate.function_text()

    small = made_small(program, fails_on_tanh)
    assert small == Program((Input("v0", (3,), "float32", "normal"),), (lines[1],), ("v1",), seed=3)
