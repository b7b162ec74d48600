"""The engine of the passes: what a rule replaces is new, and everything else is the same object as before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import primitives

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.normalize import normalize
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite
from tests.normalize.passing import outputs, primitives_of, traced

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def program(x: Any, y: Any) -> Any:
    a = jnp.cos(x)
    b = lax.neg(jnp.sin(a) * y)
    return jnp.exp(b) + y, a


def sine_by_two_others(node: Node, rewriter: Rewriter) -> Sequence[Value]:
    return [lax.cosh(lax.mul(node.args[0], lax.tanh(node.args[0])))]


def checked(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    jex.check_jaxpr(closed.jaxpr)
    return closed


def test_a_program_in_which_nothing_is_replaced_is_the_same_object() -> None:
    before = traced(program, X, X)
    assert rewrite(before, lambda node, rewriter: None) is before
    assert rewrite(before, lambda node, rewriter: rewriter.again(node)) is before
    assert rewrite(before, sine_by_two_others, named({"tan"})) is before
    plain = normalize(before)
    assert normalize(plain) is plain


def test_what_a_rule_writes_stands_where_the_equation_stood() -> None:
    before = traced(program, X, X)
    result = checked(rewrite(before, sine_by_two_others, named({"sin"})))
    assert primitives_of(result) == ["cos", "tanh", "mul", "cosh", "mul", "neg", "exp", "add"]
    same = [eqn for eqn in result.jaxpr.eqns if any(eqn is old for old in before.jaxpr.eqns)]
    assert [eqn.primitive.name for eqn in same] == ["cos", "neg", "exp", "add"]
    assert result.jaxpr.invars == before.jaxpr.invars
    assert argument_names(result) == argument_names(before) == ["x", "y"]


def test_what_is_written_has_the_line_of_what_it_replaces() -> None:
    before = traced(program, X, X)
    line = {eqn.primitive.name: user_frame(eqn) for eqn in before.jaxpr.eqns}["sin"]
    result = rewrite(before, sine_by_two_others, named({"sin"}))
    assert [user_frame(eqn) for eqn in result.jaxpr.eqns[1:4]] == [line] * 3


def test_calls_are_copied_with_lines_names_and_contexts_of_their_own() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        with jax.named_scope("inside"):
            return jnp.sin(x) + 1

    def function(x: Any) -> Any:
        with jax.named_scope("outside"):
            return inner(inner(x))

    before = traced(function, X)
    result = checked(rewrite(before, _written_out, named({"jit", "pjit"})))
    assert primitives_of(result) == ["sin", "add"] * 2
    assert len({var for eqn in result.jaxpr.eqns for var in eqn.outvars}) == 4
    assert {str(eqn.source_info.name_stack) for eqn in result.jaxpr.eqns} == {"outside/inside"}
    np.testing.assert_array_equal(outputs(result, [X])[0], outputs(before, [X])[0])


def _written_out(node: Node, rewriter: Rewriter) -> list[Value]:
    called = node.params["jaxpr"]
    return rewriter.evaluate(called.jaxpr, called.consts, node.args)


def test_a_rule_looks_back_over_taken_and_traced_equations() -> None:
    """Each neg meets the one before, whether that was there or has just been written."""

    def function(x: Any) -> Any:
        return lax.neg(lax.abs(lax.neg(lax.neg(x)))), lax.abs(lax.sin(lax.neg(x)))

    seen = []

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        maker = rewriter.maker(node.args[0])
        seen.append((node.name, maker and maker.name))
        if node.name == "neg":
            return [rewriter.bind(primitives.floor_p, node.args[0])] if maker is None else None
        return None

    result = checked(rewrite(traced(function, X), rule))
    assert seen[:4] == [("neg", None), ("neg", "floor"), ("abs", "neg"), ("neg", "abs")]
    assert primitives_of(result)[:4] == ["floor", "neg", "abs", "neg"]


def test_numbers_replace_operands_and_outputs() -> None:
    def function(x: Any) -> Any:
        total = jnp.sum(x)
        return x * total, total

    result = checked(rewrite(traced(function, X), lambda node, rewriter: [np.float32(2.5)], named({"reduce_sum"})))
    assert str(result).count("2.5") == 2 and primitives_of(result)[-1] == "mul"
    product, total = outputs(result, [X])
    np.testing.assert_array_equal(product, X * np.float32(2.5))
    assert total == 2.5 and total.dtype == np.float32


def test_loops_that_rules_write_may_read_everything_around_them() -> None:
    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value]:
        def step(carry: Any, _: Any) -> Any:
            return lax.add(carry, node.args[0]), None

        return [lax.scan(step, node.args[0], None, length=3)[0]]

    before = traced(lambda x: jnp.exp(lax.sin(jnp.cos(x))), X)
    result = checked(rewrite(before, rule, named({"sin"})))
    assert primitives_of(result) == ["cos", "scan", "exp"]
    np.testing.assert_allclose(outputs(result, [X])[0], np.exp(4 * np.cos(X)), rtol=1e-5)


def test_a_rule_must_not_write_arrays() -> None:
    with pytest.raises(CompilerBug, match="^a pass writes an array into a program"):
        rewrite(traced(jnp.sin, X), lambda node, rewriter: [lax.mul(node.args[0], X)])


def test_effects_stay_in_their_order() -> None:
    def function(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        y = lax.sin(x)
        jax.debug.print("{}", y[0, 0])
        return y

    before = traced(function, X)
    result = checked(rewrite(before, sine_by_two_others, named({"sin"})))
    assert result.jaxpr.effects == before.jaxpr.effects and result.jaxpr.effects
    kinds = ["effect" if eqn.effects else eqn.primitive.name for eqn in result.jaxpr.eqns]
    assert [kind for kind in kinds if kind in ("effect", "cosh")] == ["effect", "cosh", "effect"]


def test_no_tracer_outlives_a_pass() -> None:
    with jax.checking_leaks():
        rewrite(traced(program, X, X), sine_by_two_others, named({"sin"}))
