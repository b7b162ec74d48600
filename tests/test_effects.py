"""An effect that is added to a program changes no number, is what it is under `jax.jit`, and costs a leftover.

A part of the programs; all of them with `HYPOTHESIS_PROFILE=deep`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import jaxpr2triton as j2t
from tests.loop_programs import PROGRAMS as LOOPS
from tests.programs import PROGRAMS, Program
from tests.told import BODIES, Told, at_output, checks, in_a_body, in_the_middle

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
FEW = {
    *("layer_norm", "softmax_17", "batch_norm_statistics", "adam_tree", "sum_of_squares", "arg_extremes", "pieces"),
    *(
        "straight_through",
        "python_scalars",
        "sort_inside",
        "gather_inside",
        "layer_norm_bf16",
        "softmax_1000000",
        "nested_calls",
    ),
}
FEW_LOOPS = {"noisy_chain", "lorenz_controlled", "rnn", "gae", "hmm_forward", "thomas", "metropolis"}
SMALL = [program for program in PROGRAMS if "long" not in program.tags and (DEEP or program.name in FEW)]
LOOPING = [program for program in LOOPS if DEEP or program.name in FEW_LOOPS]
IN_A_BODY = (
    r"the body of the loop cannot be in a kernel, at told\.py:\d+ \(Told\.tells\): `debug_callback` calls Python"
)
Put = Callable[..., Callable[..., Any]]


def close(found: Any, expected: Any, low: bool = False) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(other.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        digits = 5e-2 if low else {"float64": 1e-9, "float16": 5e-3, "bfloat16": 5e-2}.get(str(other.dtype), 2e-4)
        one, other = (np.asarray(each, np.float64) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=digits, atol=digits)


def told_by(wrap: Any, program: Program, put: Put, in_order: bool) -> tuple[Any, list[np.ndarray]]:
    told = Told()
    function = put(program.fn, told.in_order if in_order else told.tells)
    found = jax.block_until_ready(wrap(function)(*program.args(np.random.default_rng(3))))
    jax.effects_barrier()
    return found, told.seen


def fused(function: Any) -> Any:
    return j2t.fuse(function, backend="interpret")


def same_as_jit(program: Program, put: Put) -> None:
    in_order = len(program.name) % 2 == 0
    expected, seen = told_by(jax.jit, program, put, in_order)
    found, told = told_by(fused, program, put, in_order)
    low = "low" in program.tags
    close(found, expected, low)
    assert len(told) == len(seen) > 0
    close(told, seen, low)


@pytest.mark.parametrize("put", [at_output, in_the_middle], ids=lambda put: put.__name__)
@pytest.mark.parametrize("program", SMALL, ids=str)
def test_what_is_told_of_a_program(program: Program, put: Put) -> None:
    with program.precision():
        same_as_jit(program, put)
        args = program.args(np.random.default_rng(3))
        alone, told = j2t.transpile(program.fn, *args), j2t.transpile(put(program.fn, Told().tells), *args)
        others = [left.primitive for left in told.leftovers if left.primitive != "debug_callback"]
        assert others == [left.primitive for left in alone.leftovers], told.explain()
        assert len(told.leftovers) == len(others) + 1
        assert len(told.kernels) <= len(alone.kernels) + 1, told.explain()


@pytest.mark.parametrize("program", LOOPING, ids=str)
def test_what_is_told_of_each_step(program: Program) -> None:
    with program.precision():
        same_as_jit(program, in_a_body)
        args = program.args(np.random.default_rng(3))
        told = j2t.transpile(in_a_body(program.fn, Told().tells), *args)
        (left,) = (left for left in told.leftovers if left.primitive != "dot_general")  # a short one, beside a loop
        assert left.primitive in BODIES and re.fullmatch(IN_A_BODY, left.why), told.explain()


def gradient_told(function: Any, effect: Any) -> Any:
    """Of the sum of all that is a floating-point number, by the first argument that is one."""

    def loss(*args: Any) -> Any:
        outputs = jax.tree.leaves(in_the_middle(function, effect)(*args))
        return sum(jnp.sum(out) for out in outputs if jnp.issubdtype(out.dtype, jnp.floating))

    return jax.grad(loss)


@pytest.mark.parametrize("program", [p for p in SMALL if p.grad is not None], ids=str)
def test_what_is_told_of_a_gradient(program: Program) -> None:
    with program.precision():
        same_as_jit(replace(program, fn=program.gradient()), at_output)
        same_as_jit(program, gradient_told)


@pytest.mark.parametrize("program", SMALL, ids=str)
def test_a_check_of_a_program(program: Program) -> None:
    with program.precision():
        args = program.args(np.random.default_rng(3))
        good = in_the_middle(program.fn, checks(lambda value: value != value))
        close(fused(good)(*args), jax.jit(program.fn)(*args), "low" in program.tags)
        bad = in_the_middle(program.fn, checks(lambda value: value == value))
        raised = [error_of(wrap(bad), *args) for wrap in (jax.jit, fused)]
        assert raised[0] == raised[1] and "this value is bad" in raised[0][1]


def error_of(function: Any, *args: Any) -> tuple[type, str]:
    """The kind of error that is raised, and its last line."""
    with pytest.raises(Exception) as caught:  # that is what is asked
        jax.block_until_ready(function(*args))
    return caught.type, str(caught.value).strip().splitlines()[-1]


# ------------------------------------------------------------------------------------------------- what stays, and why
X = jnp.linspace(0.1, 0.9, 8 * 4, dtype=jnp.float32).reshape(8, 4)


def solved(x: Any, steps: int, is_bad: Callable[[Any], Any]) -> Any:
    """A loop that carries whether all was well, and a check behind it: what solvers are."""

    def step(state: Any, t: Any) -> Any:
        y, well = state
        y = y - 0.1 * jnp.sin(y) * t
        return (y, well & jnp.all(y > -9)), y.sum()

    (y, well), sums = lax.scan(step, (x, True), jnp.arange(steps, dtype=jnp.float32))
    y = checks(lambda _: is_bad(well))(y)
    return jnp.exp(y), sums


def test_what_a_loop_accumulates_for_a_check_behind_it_is_one_of_its_results() -> None:
    program = j2t.transpile(lambda x: solved(x, 5, jnp.logical_not), X)
    assert [left.primitive for left in program.leftovers] == ["cond"], program.explain()
    loop, after = program.kernels
    assert [output.dtype for output in loop.outputs].count(np.bool_) <= 1 and len(loop.axes) > len(after.axes)
    close(program(X), jax.jit(lambda x: solved(x, 5, jnp.logical_not))(X))
    bad = lambda x: solved(x, 5, lambda well: well)  # noqa: E731
    ours, theirs = error_of(fused(bad), X), error_of(jax.jit(bad), X)
    assert ours == theirs and "this value is bad" in ours[1]
    gradient = lambda wrap: jax.grad(lambda x: sum(map(jnp.sum, wrap(lambda x: solved(x, 5, jnp.logical_not))(x))))  # noqa: E731
    close(gradient(fused)(X), gradient(jax.jit)(X))


def test_effects_are_in_order_however_much_comes_before_them() -> None:
    def function(x: Any) -> Any:
        jax.debug.print("late {}", jnp.sort(jnp.sin(jnp.sort(x[0])) * 2).sum(), ordered=True)
        jax.debug.print("early {}", x[0, 0], ordered=True)
        return jnp.cos(x)

    program = j2t.transpile(function, X)
    told = [left.equation for left in program.leftovers if left.primitive == "debug_print"]
    assert ["late" in text for text in told] == [True, False]


def test_a_check_costs_no_kernel_around_it() -> None:
    function = lambda x: jnp.cos(jnp.sin(x) * 2) / jnp.sum(x, 1, keepdims=True)  # noqa: E731
    told = in_the_middle(function, Told().tells)
    assert len(j2t.transpile(told, X).kernels) == len(j2t.transpile(function, X).kernels) == 1


def test_the_report_says_which_equation_stays_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(x: Any) -> Any:
        y = jnp.sin(x)
        jax.debug.print("{}", y.sum())
        return lax.scan(lambda c, v: (printed_step(c) + v, None), y[0], y)[0]

    def printed_step(c: Any) -> Any:
        jax.debug.print("{}", c)
        return c * 2

    monkeypatch.setenv("COLUMNS", "240")
    line = printed.__code__.co_firstlineno
    text = j2t.transpile(printed, X).explain()
    assert (
        f"    debug_print at test_effects.py:{line + 2} (printed): `debug_print` has side effects; "
        "it stays with XLA by design\n      debug_print[fmt={}"
    ) in text
    assert (
        f"    scan at test_effects.py:{line + 3} (printed): the body of the loop cannot be in a kernel, at "
        f"test_effects.py:{line + 6} (printed_step): `debug_print` has side effects; it stays with XLA by design\n"
    ) in text


def test_a_while_and_a_call_say_so_too() -> None:
    def step(c: Any) -> Any:
        io_callback(lambda c: None, None, c)
        return c * 2

    loop = j2t.transpile(lambda x: lax.while_loop(lambda c: c[0, 0] < 9, step, x), X).leftovers[0]
    assert loop.primitive == "while" and loop.takes == "it stays with XLA by design"
    assert re.fullmatch(
        r"the body of the loop cannot be in a kernel, at test_effects.py:\d+ \(step\): `io_callback` calls Python",
        loop.why,
    )


def test_what_a_callback_gives_is_kept_for_the_gradient() -> None:
    """It is called once, as it may give something else the second time."""
    calls: list[int] = []

    def numbered(x: Any) -> Any:
        calls.append(len(calls))
        return np.full_like(x, len(calls))

    def loss(x: Any) -> Any:
        factor = io_callback(numbered, jax.typeof(x), lax.stop_gradient(x))
        return jnp.sum(jnp.sin(x * factor) * factor)

    for wrap in (jax.jit, fused):
        calls.clear()
        close(jax.grad(wrap(loss))(X), jnp.cos(X))
        jax.effects_barrier()
        assert len(calls) == 1


def test_what_is_beside_and_in_a_checkpoint_that_tells_is_fused_in_its_gradient() -> None:
    """The derivative computes the checkpoint again and tells it again, as JAX's does."""
    names_are_kept = jax.checkpoint_policies.save_only_these_names("sine")

    def gradient(wrap: Any, told: Told, around: Any) -> Any:
        inner = jax.checkpoint(lambda x: jnp.cos(told.in_order(jnp.sin(x))))
        kept = jax.checkpoint(lambda x: jnp.cos(told.in_order(jnp.sin(x))), policy=names_are_kept)
        deep = jax.checkpoint(lambda x: inner(x * 2) + 1)
        each = lambda x: lax.map(jax.checkpoint(lambda v: told.in_order(jnp.cos(v))), x)  # noqa: E731
        choice = {"inner": inner, "kept": kept, "deep": deep, "each": each}[around]
        return jax.grad(wrap(lambda x: jnp.exp(choice(jnp.sin(x) * 2)).sum()))

    for around, programs in (("inner", 6), ("kept", 4), ("deep", 6), ("each", 4)):
        ours, theirs = Told(), Told()
        close(gradient(fused, ours, around)(X), gradient(jax.jit, theirs, around)(X))
        jax.effects_barrier()
        assert len(ours.seen) == len(theirs.seen) > 1
        close(ours.seen, theirs.seen)
        text = str(jax.make_jaxpr(gradient(fused, Told(), around))(X))
        assert text.count(" = fused[") >= programs, (around, text)


def test_a_fused_function_without_wanted_results_still_tells() -> None:
    told = Told()
    jax.jit(lambda x: (fused(lambda x: told.in_order(jnp.sin(x)))(x), 1)[1])(X)
    jax.effects_barrier()
    assert len(told.seen) == 1


def test_strict_refuses_the_equation() -> None:
    with pytest.raises(j2t.NotFusible, match="`debug_callback` calls Python\n  at   told.py:"):
        j2t.fuse(at_output(jnp.sin, Told().tells), strict=True)(X)
    told = Told()
    close(j2t.fuse(at_output(jnp.sin, told.tells), strict=True, backend="xla")(X), jnp.sin(X))
