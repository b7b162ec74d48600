"""The programs with loops: how many kernels they become, and that those compute what JAX computes.

All programs run in 64 bits, where hardly anything is rounded away; some of them in their own precision too
(`HYPOTHESIS_PROFILE=deep`: all of them).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.compiling import differences
from tests.loop_programs import PROGRAMS, LoopProgram

ALL = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
TWINS = ("noisy_chain_f64", "lorenz_rk4_f64", "rnn_bf16", "lstm_bf16")  # in 64 bits they are other programs once more
NARROW = ("noisy_chain", "rnn_bf16", "hmm_forward", "biquad")
LOOPS = ("scan", "while")
ROUNDS_AT_MOST = 2  # of the search for decisions: `lstm` keeps its gates whole, and then what two kernels compare
FAST = {"xla_backend_optimization_level": 0}  # to compile, not to run


def widened(leaf: Any) -> Any:
    is_float = not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(np.float64) if is_float else leaf


def by_jax(function: Callable[..., Any], *args: Any) -> list[Any]:
    return jax.tree.leaves(jax.jit(function).lower(*args).compile(compiler_options=FAST)(*args))


def gradient_and_value(program: LoopProgram) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        outputs = program.fn(*args)
        floating = [out for out in jax.tree.leaves(outputs) if jnp.issubdtype(out.dtype, jnp.floating)]
        return sum(jnp.sum(out) for out in floating), outputs

    return jax.grad(loss, argnums=program.grad, has_aux=True)


def loops_of(jaxpr: Any) -> int:
    """The loops of a program that are in no other."""
    count = 0
    for eqn in jaxpr.eqns:
        inner = jex.jaxprs_in_params(eqn.params)
        count += 1 if eqn.primitive.name in LOOPS else sum(map(loops_of, inner))
    return count


def check(program: LoopProgram, digits: float, args: Any) -> None:
    forward = j2t.transpile(program.fn, *args)
    assert (len(forward.kernels), forward.leftovers) == (1, ()), forward.explain()
    values = jax.tree.leaves(forward(*args))
    if program.grad is None:
        assert differences(values, by_jax(program.fn, *args), digits) == []
        return
    both = gradient_and_value(program)
    backward = j2t.transpile(both, *args)
    for one in (forward, backward):
        assert len(one.compiled.rounds) <= ROUNDS_AT_MOST, one.summary.steps
    most = loops_of(jax.make_jaxpr(both)(*args).jaxpr) + 2
    assert len(backward.kernels) + len(backward.leftovers) <= most, backward.explain()
    assert {left.primitive for left in backward.leftovers} <= {"dot_general"}
    expected = by_jax(both, *args)
    assert differences(jax.tree.leaves(backward(*args)), expected, digits) == []
    assert differences(values, expected[-len(values) :], digits) == []


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program.name not in TWINS], ids=str)
def test_in_64_bits(program: LoopProgram) -> None:
    with jax.enable_x64(True):
        check(program, 1e-12, jax.tree.map(widened, program.args(np.random.default_rng())))


@pytest.mark.parametrize("program", [program for program in PROGRAMS if ALL or program.name in NARROW], ids=str)
def test_in_its_own_precision(program: LoopProgram) -> None:
    with program.precision():
        check(program, 4e-2 if "low" in program.tags else 5e-5, program.args(np.random.default_rng()))
