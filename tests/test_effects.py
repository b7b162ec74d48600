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
