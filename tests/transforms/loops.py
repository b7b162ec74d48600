"""Cases: transformations of fused functions whose work is a loop, one after the other and in any order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

RNG = np.random.default_rng(5)
C, XS, W = (RNG.standard_normal(shape).astype(np.float32) * 0.7 for shape in ((3,), (5, 3), (3, 3)))
MANY, ROWS = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 3), (2, 5, 3)))


def _states(c: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = jnp.tanh(c @ W + x)
        return c, (c, c.sum())

    return lax.scan(step, c, xs)


def _last(c: Any) -> Any:
    return _states(c, XS)[0]


def _loss(c: Any, w: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return jnp.tanh(c @ w + x), jnp.sin(c).sum()

    return lax.scan(step, c, XS)[1].sum()


def _doublings(x: Any) -> Any:
    return lax.while_loop(lambda s: (jnp.abs(s[0]) < 10) & (s[1] < 20), lambda s: (s[0] * 1.5 + 0.1, s[1] + 1), (x, 0))


def vmap_of_some_axes(wrap: Any) -> Any:
    run = wrap(_states)
    return jax.vmap(run, (0, None))(MANY[0], XS), jax.vmap(run, (1, 2), (1, 0))(MANY[0].T, jnp.stack([XS] * 4, 2))


def vmap_in_vmap(wrap: Any) -> Any:
    return jax.vmap(jax.vmap(wrap(_states), (0, None)))(MANY, ROWS)


def vmap_of_while(wrap: Any) -> Any:
    return jax.vmap(jax.vmap(wrap(_doublings)))(MANY[0])


def jvp_of_loop(wrap: Any) -> Any:
    return jax.jvp(wrap(_loss), (C, W), (jnp.cos(C), W + 1))


def jvp_of_while(wrap: Any) -> Any:
    return jax.jvp(lambda x: wrap(_doublings)(x)[0], (C[0],), (jnp.ones(()),))


def jacobians_of_loop(wrap: Any) -> Any:
    return jax.jacfwd(wrap(_last))(C), jax.jacrev(wrap(_last))(C)


def hessian_of_loop(wrap: Any) -> Any:
    return jax.hessian(wrap(_loss))(C, W)


def hessian_times_vector(wrap: Any) -> Any:
    return jax.jvp(jax.grad(wrap(_loss), 1), (C, W), (jnp.cos(C), W + 1))


def vmap_of_grad_of_loop(wrap: Any) -> Any:
    return jax.vmap(jax.value_and_grad(wrap(_loss), (0, 1)), (0, None))(MANY[0], W)


def linearised(wrap: Any) -> Any:
    value, push = jax.linearize(wrap(_last), C)
    return value, push(jnp.ones(3)), jax.vmap(push)(jnp.eye(3))


def donated_to_a_loop(wrap: Any) -> Any:
    return jax.jit(wrap(_states), donate_argnums=0)(jnp.array(C), XS)


def checkpointed_loops(wrap: Any) -> Any:
    policy = jax.checkpoint_policies.save_only_these_names("h")

    def step(c: Any, x: Any) -> Any:
        h = checkpoint_name(jnp.sin(c @ W), "h")
        c = jnp.tanh(h + x) * jnp.exp(-h)
        return c, c.sum()

    inside = wrap(lambda c: lax.scan(jax.checkpoint(step, policy=policy), c, XS)[1].sum())
    around = jax.checkpoint(wrap(lambda c: lax.scan(jax.checkpoint(step), c, XS)[1].sum()), policy=policy)
    return jax.grad(inside)(C), jax.grad(around)(C)


def loop_of_fused_loops(wrap: Any) -> Any:
    inner = wrap(lambda c, x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x + i, c))
    return jax.grad(lambda c: lax.scan(lambda c, x: (inner(c, x), c.sum()), c, XS)[1].sum())(C)


@jax.custom_jvp
def _spike(x: Any) -> Any:
    return (x > 0).astype(x.dtype)


@_spike.defjvp
def _spike_jvp(primals: Any, tangents: Any) -> Any:
    return _spike(*primals), tangents[0] / (1 + jnp.abs(primals[0])) ** 2


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x * 2


_clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * x,))


def own_derivatives_in_steps(wrap: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return jnp.tanh(_clipped(c)) + x - _spike(c), _spike(c).sum()

    run = wrap(lambda c, xs: lax.scan(step, c, xs)[1].sum() + lax.scan(step, c, xs)[0].sum())
    return jax.value_and_grad(run, (0, 1))(C, XS)


def gradient_by_keys_and_counts(wrap: Any) -> Any:
    """Not everything that a loop is given has a derivative."""

    def run(x: Any, key: Any, count: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            x, key, n = carry
            key, now = jax.random.split(key)
            return (jnp.sin(x) * n + jax.random.normal(now, x.shape), key, n + 1), x

        return lax.scan(step, (x, key, count), None, length=3)[1].sum()

    return jax.grad(wrap(run))(C, jax.random.key(3), 1)


CASES = (
    vmap_of_some_axes,
    vmap_in_vmap,
    vmap_of_while,
    jvp_of_loop,
    jvp_of_while,
    jacobians_of_loop,
    hessian_of_loop,
    hessian_times_vector,
    vmap_of_grad_of_loop,
    linearised,
    donated_to_a_loop,
    checkpointed_loops,
    loop_of_fused_loops,
    own_derivatives_in_steps,
    gradient_by_keys_and_counts,
)
