"""What the user's own rules close over, arrays and values of a trace around, becomes operands of derived programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.front import derived_programs as derived

TABLE = jnp.asarray(np.linspace(0.5, 1.5, 4, dtype=np.float32))
MATRIX = jnp.diag(TABLE * 4) + jnp.ones((4, 4)) / 8
INVERSE = jnp.linalg.inv(MATRIX)
X = jnp.arange(1.0, 5.0)
scaled = jax.jit(lambda x: x * TABLE)  # a call that holds an array


# ----------------------------------------------------------------------------------------------- implicit derivatives
def linear_solve(b: Any) -> Any:
    solved = lax.custom_linear_solve(lambda x: MATRIX @ x, b * TABLE, lambda _, b: INVERSE @ b, symmetric=True)
    return jnp.sin(solved).sum()


def linear_solve_in_a_scan(b: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        y = lax.custom_linear_solve(lambda x: scaled(x) * b, c, lambda _, c: c / TABLE / b, symmetric=True)
        return jnp.sin(y) + 1, y

    return lax.scan(step, b, None, length=3)[1].sum()


def conjugate_gradients(b: Any) -> Any:
    return jnp.sin(jax.scipy.sparse.linalg.cg(lambda x: MATRIX @ scaled(x) / TABLE, b, maxiter=4)[0]).sum()


def root(a: Any) -> Any:
    """x**3 = a * TABLE + sin a, by Newton's method."""
    shift = jnp.sin(a)

    def residual(x: Any) -> Any:
        return x**3 - scaled(a) - shift

    def newton(f: Any, x: Any) -> Any:
        return lax.fori_loop(0, 12, lambda _, x: x - f(x) / (3 * x**2), x)

    return lax.custom_root(residual, 2 * jnp.ones_like(a), newton, lambda g, y: y / g(jnp.ones_like(y))).sum()


def implicit_by_hand(a: Any) -> Any:
    """The derivative of the fixed point of x = cos(x * TABLE) + a / 9, by the implicit function theorem."""

    def step(x: Any, a: Any) -> Any:
        return jnp.cos(x * TABLE) / 2 + a / 9

    @jax.custom_vjp
    def fixed(a: Any) -> Any:
        return lax.fori_loop(0, 30, lambda _, x: step(x, a), a)

    def backward(residuals: Any, cotangent: Any) -> Any:
        x, a = residuals
        _, pull = jax.vjp(step, x, a)
        total = lax.fori_loop(0, 30, lambda _, u: cotangent + pull(u)[0], cotangent)
        return (pull(total)[1] * scaled(jnp.ones(4)) / TABLE,)

    fixed.defvjp(lambda a: ((x := fixed(a)), (x, a)), backward)
    return fixed(a).sum()


# ----------------------------------------------------------------------------------------------------- derivative rules
@jax.custom_jvp
def forward_rule(x: Any) -> Any:
    return jnp.sqrt(x)


forward_rule.defjvp(lambda p, t: (forward_rule(*p), scaled(t[0]) * TABLE * p[0]))


@jax.custom_vjp
def backward_rule(x: Any) -> Any:
    return jnp.sqrt(x)


backward_rule.defvjp(lambda x: (backward_rule(x), (x, scaled(x) * TABLE)), lambda r, g: (scaled(g) * r[0] * r[1],))


def one_forward_rule(x: Any) -> Any:
    return forward_rule(x).sum()


def one_backward_rule(x: Any) -> Any:
    return backward_rule(x).sum()


def rules_in_a_scan(x: Any) -> Any:
    return lax.scan(lambda c, _: (forward_rule(c) + backward_rule(c), c.sum()), x, None, length=3)[0].sum()


def checkpointed(x: Any) -> Any:
    return jax.checkpoint(lambda x: scaled(jnp.sin(x) * TABLE))(x).sum()


def call_in_a_scan(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(scaled(c)) + 1, c.sum()), x, None, length=3)[0].sum()


def call_in_a_branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, lambda x: jnp.sin(scaled(x) * TABLE), lambda x: x, x).sum()


def call_in_a_branch_in_a_scan(x: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return lax.cond(c[0] > 2, lambda c: jnp.sin(scaled(c) * TABLE), lambda c: c + 1, c), c.sum()

    return lax.scan(step, x, None, length=3)[0].sum()


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def applied(function: Any, x: Any) -> Any:
    return function(x)


@applied.defjvp
def _applied_jvp(function: Any, primals: Any, tangents: Any) -> Any:
    return function(*primals), jax.jvp(function, primals, tangents)[1] * TABLE


def function_as_an_argument(x: Any) -> Any:
    return applied(lambda v: jnp.sin(scaled(v)), x * jnp.cos(x)).sum()


PROGRAMS = (
    *(linear_solve, linear_solve_in_a_scan, conjugate_gradients, root, implicit_by_hand, one_forward_rule),
    *(one_backward_rule, rules_in_a_scan, checkpointed, call_in_a_scan, call_in_a_branch),
    *(call_in_a_branch_in_a_scan, function_as_an_argument),
)
ONLY_BACKWARDS = (implicit_by_hand, one_backward_rule, rules_in_a_scan)


def pairs(x: Any) -> Any:
    return jnp.stack([x, x * 1.25])


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),)),
    "vmap_of_grad": lambda f: lambda x: jax.vmap(jax.grad(f))(pairs(x)),
    "grad_of_vmap": lambda f: jax.grad(lambda x: jax.vmap(f)(pairs(x)).sum()),
    "hessian": jax.hessian,
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.float32(2)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](jnp.cos(x)),
    "jit_of_grad": lambda f: jax.jit(jax.grad(f)),
}
ALL = [(p, t) for p in PROGRAMS for t in list(TRANSFORMS)[:5] if p not in ONLY_BACKWARDS or t not in ("jvp", "hessian")]
ALL += [(program, t) for program in (linear_solve, one_forward_rule) for t in list(TRANSFORMS)[5:]]


@pytest.mark.parametrize("program, transform", ALL, ids=lambda each: getattr(each, "__name__", each))
def test_closed_over_values_in_derived_programs(program: Callable[..., Any], transform: str) -> None:
    function = TRANSFORMS[transform]
    expected = function(jax.jit(program))(X)
    jax.tree.map(close, function(j2t.fuse(program, backend="interpret"))(X), expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_transpiled_gradients_of_closed_over_values(program: Callable[..., Any]) -> None:
    value, gradient = j2t.transpile(program, X, grad=True)(X)
    jax.tree.map(close, (value, gradient), jax.value_and_grad(program)(X))


def test_captured_tracers_are_not_remembered() -> None:
    seen = []

    def outer(w: Any, x: Any) -> Any:
        @jax.custom_vjp
        def inner(x: Any) -> Any:
            return x

        inner.defvjp(lambda x: (x, ()), lambda _, g: (g * w,))
        jaxpr = jax.make_jaxpr(lambda x: inner(x))(x)
        halves = derived.split_program(jaxpr, (True,))
        back = derived.transposed_program(halves.linear, (True,), (True,))
        seen.append((back.captured, derived.transposed_program(halves.linear, (True,), (True,)) is back))
        return w

    jax.jit(outer)(X, X)
    ((captured, remembered),) = seen
    assert len(captured) == 1 and isinstance(captured[0], jax.core.Tracer) and not remembered


def test_the_batching_rule_of_a_custom_vmap() -> None:
    @jax.custom_batching.custom_vmap
    def doubled(x: Any) -> Any:
        return x * 2

    @doubled.def_vmap
    def _rule(size: int, batched: Any, x: Any) -> Any:
        return x * 2 * TABLE, True

    function = j2t.fuse(lambda x: doubled(x).sum(), backend="interpret")
    close(jax.vmap(function)(pairs(X)), (pairs(X) * 2 * TABLE).sum(1))
    close(jax.jvp(function, (X,), (X,))[1], 20.0)  # JAX can push it forward, not linearize it


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
