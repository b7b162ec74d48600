"""Every pass keeps every program: its values, the types of its outputs, its names and the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
import pytest

from jaxpr2triton._compat import CALLS, user_frame
from jaxpr2triton.ir.rounded import rounded_p
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.normalize import PASSES, normalize
from jaxpr2triton.trace import trace_flat
from tests.normalize.passing import outputs, same_bits
from tests.programs import PROGRAMS, Program

SMALL = [program for program in PROGRAMS if "long" not in program.tags]
ROUNDING = {"inline_calls", "decompose"}  # XLA compiles a call as a whole; decompositions round in their own way


def _check(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    leaves, tree = jax.tree.flatten(args)
    closed, consts = trace_flat(lambda *flat: jax.tree.leaves(function(*jax.tree.unflatten(tree, flat))), leaves)
    operands = [*consts, *leaves]
    values = outputs(closed, operands)
    names = argument_names(closed)
    for each in PASSES:
        before, closed = closed, each.run(closed)
        assert closed.out_avals == before.out_avals, each.name
        if closed is before:
            continue
        jex.check_jaxpr(closed.jaxpr)
        assert argument_names(closed) == names, each.name
        expected, values = values, outputs(closed, operands)
        for old, new in zip(expected, values, strict=True):
            if (each.name in ROUNDING or _sigmoids(closed) > _sigmoids(before)) and old.dtype.kind == "f":
                np.testing.assert_allclose(new, old, rtol=1e-3 if old.dtype == np.float16 else 2e-5, atol=1e-6)
            else:
                assert same_bits(old, new), f"{each.name}: {old} became {new}"
        _check_lines(closed)
    assert not {eqn.primitive.name for eqn in closed.jaxpr.eqns} & CALLS
    assert _computations(normalize(closed)) <= _computations(closed)


def _computations(closed: jex.ClosedJaxpr) -> int:
    """But for saying that something is rounded by itself."""
    return sum(eqn.primitive is not rounded_p for eqn in closed.jaxpr.eqns)


def _sigmoids(closed: jex.ClosedJaxpr) -> int:
    """Of which some are the derivatives of softplus, that JAX writes with fewer digits."""
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns].count("logistic")


def _check_lines(closed: jex.ClosedJaxpr) -> None:
    for eqn in closed.jaxpr.eqns:
        frame = user_frame(eqn)
        assert frame is not None, eqn
        assert frame.file.endswith(("programs.py", "test_normalize_programs.py")), (eqn, frame)


@pytest.mark.parametrize("program", SMALL, ids=str)
def test_forward(program: Program) -> None:
    with program.precision():
        _check(program.fn, program.args(np.random.default_rng(1)))


@pytest.mark.parametrize("program", [program for program in SMALL if program.grad is not None], ids=str)
def test_gradient(program: Program) -> None:
    with program.precision():
        _check(program.gradient(), program.args(np.random.default_rng(2)))
