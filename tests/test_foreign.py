"""Primitives of other people: what their implementations compute is in kernels, and all their rules are their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import ad, batching, mlir, xla

import jaxpr2triton as j2t

X = jnp.asarray(np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4))


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def primitive(
    name: str, implementation: Callable[..., Any], *, lowered: bool = True, like: Any = None
) -> jex.Primitive:
    made = jex.Primitive(name)
    made.def_impl(implementation)
    made.def_abstract_eval(lambda x, *_, **__: jax.core.ShapedArray(x.shape, x.dtype))
    if lowered:
        mlir.register_lowering(made, mlir.lower_fun(implementation, multiple_results=False))
    return made


def agrees(function: Callable[..., Any], *args: Any, plain: Callable[..., Any] | None = None) -> None:
    """In kernels, without leftovers, with the values of `jax.jit`."""
    got = j2t.fuse(function, backend="interpret", strict=True)(*args)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(plain or function)(*args)), strict=True):
        close(ours, theirs)


def reason(function: Callable[..., Any], *args: Any) -> str:
    (leftover,) = j2t.transpile(function, *args).leftovers
    return leftover.why


# ---------------------------------------------------------------------------------------------------------- with rules
def _softsign(x: Any, *, scale: float) -> Any:
    return x / (scale + jnp.abs(x))


softsign_p = primitive("softsign", _softsign)


def softsign(x: Any, scale: float = 1.5) -> Any:
    return softsign_p.bind(x, scale=scale)


# rules that are not those of the implementation, so that one sees which of them was used
ad.defjvp(softsign_p, lambda tangent, x, *, scale: 7 * tangent * x)
batching.defvectorized(softsign_p)


def in_a_scan(x: Any) -> Any:
    return lax.scan(lambda c, row: (softsign(c + row), softsign(row)), x[0], x)


def in_a_while(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, softsign(c[1])), (0, x))[1]


def in_a_branch(x: Any) -> Any:
    return lax.cond(x[0, 0] > 0, lambda: softsign(x), lambda: x)


def in_calls(x: Any) -> Any:
    return jax.checkpoint(jax.jit(lambda y: jnp.sin(softsign(y))))(x)


@pytest.mark.parametrize("function", [softsign, in_a_scan, in_a_while, in_a_branch, in_calls])
def test_its_implementation_is_in_kernels(function: Callable[..., Any]) -> None:
    agrees(function, X)
    agrees(jax.vmap(function), jnp.stack([X, X + 1]))


@pytest.mark.parametrize("function", [softsign, in_a_scan, in_a_branch, in_calls])
def test_its_own_derivative_is_taken(function: Callable[..., Any]) -> None:
    def loss(x: Any) -> Any:
        return sum(jnp.sum(out) for out in jax.tree.leaves(function(x)))

    agrees(jax.grad(loss), X)
    inside = j2t.fuse(loss, backend="interpret")
    close(jax.grad(inside)(X), jax.grad(loss)(X))
    close(jax.jvp(inside, (X,), (X + 1,))[1], jax.jvp(loss, (X,), (X + 1,))[1])
    close(jax.grad(lambda x: jax.grad(inside)(x).sum())(X), jax.grad(lambda x: jax.grad(loss)(x).sum())(X))


def test_its_own_batching_is_used() -> None:
    anywhere_p = primitive("anywhere", lambda p: p)
    batching.primitive_batchers[anywhere_p] = lambda args, dims: (anywhere_p.bind(jnp.any(args[0], dims[0])), None)

    def clipped(x: Any) -> Any:
        return lax.cond(anywhere_p.bind(x[0] > 0.5), lambda: x * 2, lambda: x)

    agrees(jax.vmap(clipped), X)
    fused = j2t.fuse(clipped, backend="interpret")
    close(jax.vmap(fused)(X), jax.vmap(clipped)(X))


def test_its_own_transpose_is_used() -> None:
    turned_p = primitive("turned", lambda x: x[::-1])
    ad.deflinear2(turned_p, lambda ct, x: (3 * ct,))
    agrees(jax.grad(lambda x: jnp.sum(turned_p.bind(x) * X)), X)


# ------------------------------------------------------------------------------------------------------ implementations
def test_several_results() -> None:
    both_p = jex.Primitive("both")
    both_p.multiple_results = True
    both_p.def_impl(lambda x, y: [jnp.sin(x) * y, x.sum(0), jnp.float32(2)])
    both_p.def_abstract_eval(
        lambda x, y: [x, jax.core.ShapedArray(x.shape[1:], x.dtype), jax.core.ShapedArray((), x.dtype)]
    )
    mlir.register_lowering(both_p, mlir.lower_fun(lambda x, y: [jnp.sin(x) * y, x.sum(0), jnp.float32(2)]))
    agrees(lambda x: both_p.bind(x, x + 1), X)


def test_parameters_of_every_kind() -> None:
    def implementation(x: Any, *, jaxpr: Any, tree: Any, scales: tuple[float, ...], function: Any) -> Any:
        (y,) = jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)
        parts = jax.tree.unflatten(tree, [y, *scales])
        return function(parts["a"]) * parts["b"]

    params_p = primitive("params", implementation)

    def function(x: Any) -> Any:
        return params_p.bind(
            x,
            jaxpr=jax.make_jaxpr(jnp.cos)(x),
            tree=jax.tree.structure({"a": 0, "b": 0}),
            scales=(3.0,),
            function=lambda y: y + 1,
        )

    agrees(function, X)


def test_a_jit_inside_and_another_primitive_inside() -> None:
    outer_p = primitive("outer", jax.jit(lambda x: softsign(x) + 1, inline=False))
    agrees(lambda x: lax.fori_loop(0, 3, lambda _, c: outer_p.bind(c), x), X)


def test_an_array_that_it_closes_over() -> None:
    table = np.arange(4, dtype=np.float32)
    table_p = primitive("table", lambda x: x * table)
    agrees(table_p.bind, X)
    agrees(lambda x: lax.scan(lambda c, _: (table_p.bind(c), None), x, None, 3)[0], X)


def test_what_it_is_lowered_by_is_what_counts() -> None:
    double_p = primitive("double", lambda x: x * 2, lowered=False)
    mlir.register_lowering(double_p, mlir.lower_fun(lambda x: x * 2 + 0.5, multiple_results=False))
    agrees(double_p.bind, X)


def test_a_lowering_by_hand_has_the_implementation_for_it() -> None:
    same_p = primitive("same", lambda x: x, lowered=False)
    mlir.register_lowering(same_p, lambda ctx, x: [x])
    agrees(lambda x: jnp.sin(same_p.bind(x)), X)


def test_one_that_is_called_like_one_of_ours_is_not_taken_for_it() -> None:
    exp_p = primitive("exp", lambda x: x * 2)
    agrees(exp_p.bind, X)
    numpys_p = primitive("exp", lambda x: np.asarray(x) * 2, lowered=False)
    mlir.register_lowering(numpys_p, lambda ctx, x: [x])
    close(j2t.fuse(numpys_p.bind, backend="interpret")(X), X)
    assert "`exp (not JAX's)`" in reason(numpys_p.bind, X) or "values" in reason(numpys_p.bind, X)


def test_special_functions_of_jax_that_are_written_in_jax() -> None:
    agrees(jax.scipy.special.gammainc, X, X + 1)
    agrees(jax.scipy.special.betainc, X, X + 1, X / 2)


# ------------------------------------------------------------------------------------------------------------ leftovers
def test_one_without_an_implementation() -> None:
    bare_p = jex.Primitive("bare")
    bare_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(bare_p, lambda ctx, x: [x])
    assert reason(bare_p.bind, X) == "there is no rule for the primitive `bare`"
    close(j2t.fuse(lambda x: jnp.sin(bare_p.bind(x)), backend="interpret")(X), jnp.sin(X))


def test_one_that_only_dispatches() -> None:
    by_jax_p = primitive("again", lambda x: xla.apply_primitive(by_jax_p, x), lowered=False)
    by_itself_p = primitive("again", lambda x: by_itself_p.bind(x), lowered=False)
    for again_p in (by_jax_p, by_itself_p):
        mlir.register_lowering(again_p, lambda ctx, x: [x])
        assert reason(again_p.bind, X) == "the implementation of `again` does no more than run it"


def test_two_that_run_each_other() -> None:
    there_p = primitive("there", lambda x: back_p.bind(x), lowered=False)
    back_p = primitive("back", lambda x: there_p.bind(x), lowered=False)
    assert reason(there_p.bind, X) == "the implementation of `there` does no more than run it"


def test_one_that_needs_values() -> None:
    for implementation in (
        lambda x: x if float(x[0, 0]) > 0 else -x,
        lambda x: np.sin(np.asarray(x)),
        lambda x: x[x > 0].reshape(x.shape),
    ):
        values_p = primitive("values", implementation, lowered=False)
        expected = "the implementation of `values` needs the values of its operands, so that it cannot be traced"
        assert reason(values_p.bind, X) == expected


def test_one_with_side_effects() -> None:
    def implementation(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    told_p = primitive("told", implementation, lowered=False)
    assert reason(told_p.bind, X) == "the implementation of `told` has side effects"


def test_one_that_raises_or_returns_something_else() -> None:
    def failing(x: Any) -> Any:
        raise KeyError("no such thing")

    failing_p = primitive("failing", failing, lowered=False)
    expected = "the implementation of `failing` cannot be traced: KeyError: 'no such thing'"
    assert reason(failing_p.bind, X) == expected
    other_p = primitive("other", lambda x: x.sum(), lowered=False)
    assert reason(other_p.bind, X) == "the implementation of `other` returns other types than the primitive"


def test_a_loop_says_so() -> None:
    values_p = primitive("values", lambda x: x if float(x[0, 0]) > 0 else -x, lowered=False)
    why = reason(lambda x: lax.scan(lambda c, _: (values_p.bind(c), None), x, None, 3)[0], X)
    assert "the implementation of `values` needs the values of its operands" in why


HALF, ROW = jnp.float32(0.5), jnp.arange(4.0)


@pytest.mark.parametrize("held", [HALF, ROW], ids=["number", "row"])
def test_what_an_implementation_holds_is_no_obstacle_to_the_report(held: Any) -> None:
    """A call holds it, in a branch too."""
    holding = primitive("holding", lambda x: jnp.sin(x) * held)

    def function(x: Any) -> Any:
        return lax.cond(x[0, 0] > 0, holding.bind, jnp.cos, x) + holding.bind(x)

    program = j2t.transpile(function, X)
    close(program(X), function(X))
    assert "x[0], out[0]" in program.explain(why=True)
