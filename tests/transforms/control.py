"""Cases: control flow, checkpoints, and functions with rules of their own, inside and around a fused function."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tests.transforms.functions import PARAMS, V, W, X, Y, dense, energy, layer_norm, mix, softmax, wave


def scan_over_fused(wrap: Any) -> Any:
    step = wrap(lambda c, x: (jnp.tanh(c + x), c * x))
    return lax.scan(step, V, X)


def grad_of_scan_over_fused(wrap: Any) -> Any:
    step = wrap(lambda c, x: (jnp.tanh(c @ W + x), c * x))
    return jax.grad(lambda c, xs: sum(map(jnp.sum, lax.scan(step, c, xs))), argnums=(0, 1))(V, X)


def scan_inside(wrap: Any) -> Any:
    return wrap(lambda c, xs: lax.scan(lambda c, x: (c + x, c * x), c, xs))(V, X)


def grad_of_scan_inside(wrap: Any) -> Any:
    run = wrap(lambda c, xs: lax.scan(lambda c, x: (jnp.sin(c) * x, c), c, xs)[0].sum())
    return jax.grad(run, argnums=(0, 1))(V, X)


def closed_over_carry(wrap: Any) -> Any:
    return lax.scan(lambda c, x: (wrap(lambda x: x + c)(x), c), V, X)


def fori_loop_over_fused(wrap: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, x: wrap(lambda x: jnp.cos(x) + i)(x), X)


def while_loop_over_fused(wrap: Any) -> Any:
    step = wrap(lambda s: (s[0] + 1, s[1] * 1.5))
    return lax.while_loop(lambda s: s[0] < 3, step, (0, X))


def fused_condition(wrap: Any) -> Any:
    return lax.while_loop(wrap(lambda x: x.sum() < 20), lambda x: x * x + 1, jnp.abs(X))


def while_loop_inside(wrap: Any) -> Any:
    return wrap(lambda x: lax.while_loop(lambda s: s.sum() < 50, lambda s: s * 2, jnp.abs(x)))(X)


def forward_through_while(wrap: Any) -> Any:
    run = wrap(lambda x: lax.while_loop(lambda s: s.sum() < 50, lambda s: s * s + 1, jnp.abs(x)))
    return jax.jvp(run, (X,), (Y,))


def cond_over_fused(wrap: Any) -> Any:
    choose = jax.jit(lambda p, x: lax.cond(p, wrap(jnp.sin), wrap(wave), x))
    return choose(True, X), choose(False, X)


def grad_of_cond_inside(wrap: Any) -> Any:
    f = wrap(lambda p, x: lax.cond(p, jnp.sin, wave, x).sum())
    return jax.grad(f, argnums=1)(True, X), jax.grad(f, argnums=1)(False, X)


def vmap_of_cond_inside(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x)))(jnp.array([True, False, True]), X)


def switch_over_fused(wrap: Any) -> Any:
    return [lax.switch(i, [wrap(wave), wrap(jnp.exp), wrap(softmax)], X) for i in range(3)]


def map_over_fused(wrap: Any) -> Any:
    return lax.map(wrap(wave), X), lax.map(wrap(wave), X, batch_size=2)


def associative_scan(wrap: Any) -> Any:
    return lax.associative_scan(wrap(lambda a, b: a * 0.5 + b), X), lax.cumsum(wrap(wave)(X))


def checkpoint(wrap: Any) -> Any:
    return jax.grad(jax.checkpoint(wrap(energy)))(X)


def checkpoint_inside(wrap: Any) -> Any:
    f = jax.checkpoint(lambda p, x: dense(p, jnp.sin(dense(p, x))))
    return jax.grad(wrap(lambda p, x: f(p, x).sum()))(PARAMS, X)


def _with_policy(wrap: Any, policy: Any) -> Any:
    f = jax.checkpoint(lambda p, x: jnp.sin(dense(p, dense(p, x))), policy=policy)
    outside = jax.checkpoint(wrap(lambda p, x: jnp.sin(dense(p, x)).sum()), policy=policy)
    return jax.grad(wrap(lambda p, x: f(p, x).sum()))(PARAMS, X), jax.grad(outside)(PARAMS, X)


def checkpoint_nothing(wrap: Any) -> Any:
    return _with_policy(wrap, jax.checkpoint_policies.nothing_saveable)


def checkpoint_everything(wrap: Any) -> Any:
    return _with_policy(wrap, jax.checkpoint_policies.everything_saveable)


def checkpoint_dots(wrap: Any) -> Any:
    return _with_policy(wrap, jax.checkpoint_policies.dots_saveable)


def checkpoint_names(wrap: Any) -> Any:
    f = jax.checkpoint(
        lambda x: jnp.sin(checkpoint_name(jnp.exp(x), "e")).sum(),
        policy=jax.checkpoint_policies.save_only_these_names("e"),
    )
    return jax.grad(wrap(f))(X), jax.grad(jax.checkpoint(wrap(f)))(X)


def checkpoint_in_scan(wrap: Any) -> Any:
    step = jax.checkpoint(lambda c, x: (wrap(lambda c, x: jnp.tanh(c * x + c))(c, x), None))
    return jax.grad(lambda c: lax.scan(step, c, X)[0].sum())(V)


def hessian_of_checkpoint(wrap: Any) -> Any:
    return jax.hessian(jax.checkpoint(wrap(energy)))(V), jax.hessian(wrap(jax.checkpoint(energy)))(V)


@jax.custom_jvp
def _doubled_slope(x: Any) -> Any:
    return jnp.sin(x)


@_doubled_slope.defjvp
def _doubled_slope_jvp(primals: Any, tangents: Any) -> Any:
    return _doubled_slope(primals[0]), 2 * jnp.cos(primals[0]) * tangents[0]


def custom_jvp_inside(wrap: Any) -> Any:
    f = wrap(lambda x: (_doubled_slope(x) * x).sum())
    return f(X), jax.grad(f)(X), jax.jvp(f, (X,), (Y,)), jax.hessian(f)(V), jax.vmap(jax.grad(f))(X)


def custom_jvp_of_second_order(wrap: Any) -> Any:
    """The rule is itself written with the function, so the second derivative uses the rule again."""
    f = wrap(_doubled_slope)
    return jax.grad(jax.grad(lambda t: f(t) * f(t)))(0.4), jax.grad(jax.grad(f))(0.4)


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x**2


_clipped.defvjp(lambda x: (x**2, x), lambda x, ct: (jnp.clip(2 * x * ct, -0.5, 0.5),))


def custom_vjp_inside(wrap: Any) -> Any:
    f = wrap(lambda x: (_clipped(x) * 3).sum())
    return f(X), jax.grad(f)(X), jax.vmap(jax.grad(f))(X), jax.jit(jax.grad(f))(X)


def custom_vjp_of_second_order(wrap: Any) -> Any:
    f = wrap(lambda x: jnp.sin(_clipped(x)).sum())
    return jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum())(X)


def custom_vjp_refuses_forward_mode(wrap: Any) -> Any:
    try:
        jax.jvp(wrap(_clipped), (X,), (Y,))
    except TypeError as problem:
        return "forward-mode" in str(problem)
    return "no error"


def custom_jvp_around(wrap: Any) -> Any:
    f = jax.custom_jvp(wrap(jnp.sin))
    f.defjvp(lambda p, t: (f(p[0]), 3 * t[0]))
    return jax.grad(lambda x: f(x).sum())(X)


def custom_vjp_around(wrap: Any) -> Any:
    f = jax.custom_vjp(wrap(mix))
    f.defvjp(lambda x, y: (wrap(mix)(x, y), (x, y)), lambda res, ct: (wrap(jnp.multiply)(ct, res[1]), ct))
    return jax.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1))(X, Y)


def custom_gradient_inside(wrap: Any) -> Any:
    f = jax.custom_gradient(lambda x: (x**3, lambda ct: ct * 7 * x))
    return jax.grad(wrap(lambda x: f(x).sum()))(X)


def custom_root(wrap: Any) -> Any:
    def root(a: Any) -> Any:
        newton = lambda g, x: lax.fori_loop(0, 12, lambda _, x: x - g(x) / jax.jvp(g, (x,), (1.0,))[1], x)  # noqa: E731
        return lax.custom_root(wrap(lambda x: x**3 - a), a, newton, lambda g, y: y / g(1.0))

    return root(2.0), jax.grad(root)(2.0), jax.grad(wrap(root))(3.0)


def custom_linear_solve(wrap: Any) -> Any:
    matrix = W @ W.T + 3 * jnp.eye(4)

    def solve(b: Any) -> Any:
        return lax.custom_linear_solve(
            wrap(lambda x: matrix @ x), b, lambda _, b: jnp.linalg.solve(matrix, b), symmetric=True
        )

    return solve(V), jax.grad(lambda b: (solve(b) ** 2).sum())(V), jax.grad(wrap(lambda b: solve(b).sum()))(V)


def relu_family(wrap: Any) -> Any:
    """jax.nn, whose functions have rules of their own."""
    f = wrap(lambda x: (jax.nn.relu(x) + jax.nn.gelu(x) * jax.nn.silu(x) + jax.nn.softplus(x)).sum())
    return f(X), jax.grad(f)(X), jax.hessian(f)(V)


def jax_nn_softmax(wrap: Any) -> Any:
    f = wrap(lambda x: (jax.nn.log_softmax(x) * Y).sum() + jax.nn.logsumexp(x, axis=-1).sum())
    return jax.value_and_grad(f)(X)


def optimiser_step(wrap: Any) -> Any:
    @wrap
    def step(params: Any, moment: Any, x: Any) -> Any:
        gradient = jax.grad(lambda p: (dense(p, x) ** 2).mean())(params)
        moment = jax.tree.map(lambda m, g: 0.9 * m + g, moment, gradient)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, moment), moment

    state = (PARAMS, jax.tree.map(jnp.zeros_like, PARAMS))
    for _ in range(2):
        state = step(*state, X)
    return state


def rematerialised_layer_norm(wrap: Any) -> Any:
    f = functools.reduce(lambda g, _: jax.checkpoint(g), range(2), wrap(layer_norm))
    return jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2))(X, V, V)


CASES = (
    *(scan_over_fused, grad_of_scan_over_fused, scan_inside, grad_of_scan_inside, closed_over_carry),
    *(fori_loop_over_fused, while_loop_over_fused, fused_condition, while_loop_inside, forward_through_while),
    *(cond_over_fused, grad_of_cond_inside, vmap_of_cond_inside, switch_over_fused, map_over_fused),
    *(associative_scan, checkpoint, checkpoint_inside, checkpoint_nothing, checkpoint_everything, checkpoint_dots),
    *(checkpoint_names, checkpoint_in_scan, hessian_of_checkpoint, custom_jvp_inside, custom_jvp_of_second_order),
    *(custom_vjp_inside, custom_vjp_of_second_order, custom_vjp_refuses_forward_mode, custom_jvp_around),
    *(custom_vjp_around, custom_gradient_inside, custom_root, custom_linear_solve, relu_family, jax_nn_softmax),
    *(optimiser_step, rematerialised_layer_norm),
)
