"""Cases: derivatives, forward and reverse, first and higher."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from tests.transforms.functions import PARAMS, V, W, X, Y, dense, energy, layer_norm, mix, softmax, wave


def grad(wrap: Any) -> Any:
    return jax.grad(wrap(energy))(X)


def grad_of_layer_norm(wrap: Any) -> Any:
    f = wrap(layer_norm)
    return jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2))(X, V, V)


def grad_of_softmax(wrap: Any) -> Any:
    f = wrap(softmax)
    return jax.grad(lambda x: (f(x) * Y).sum())(X)


def grad_of_some_arguments(wrap: Any) -> Any:
    return jax.grad(wrap(lambda x, y: mix(x, y).sum()), argnums=1)(X, Y)


def grad_of_pytree(wrap: Any) -> Any:
    return jax.grad(wrap(lambda p, x: dense(p, x).sum()))(PARAMS, X)


def grad_of_keyword(wrap: Any) -> Any:
    f = wrap(lambda x, *, factor: (x * factor).sum())
    return jax.grad(lambda k: f(X, factor=k))(Y)


def grad_under_jit(wrap: Any) -> Any:
    return jax.jit(jax.grad(wrap(energy)))(X)


def grad_inside(wrap: Any) -> Any:
    return wrap(jax.grad(energy))(X)


def grad_outside_and_inside(wrap: Any) -> Any:
    return wrap(jax.grad(lambda x: wrap(energy)(x) ** 2))(X)


def value_and_grad(wrap: Any) -> Any:
    return jax.value_and_grad(wrap(energy))(X)


def value_and_grad_has_aux(wrap: Any) -> Any:
    f = wrap(lambda x: (energy(x), {"square": x**2, "count": x.size}))
    return jax.value_and_grad(f, has_aux=True)(X)


def grad_of_integers(wrap: Any) -> Any:
    """Integer arguments take part; their cotangents are float0."""
    f = wrap(lambda x, n: (x * n).sum())
    n = jnp.arange(4)
    gradient, tangent = jax.grad(f, argnums=(0, 1), allow_int=True)(X, n)
    return gradient, tangent.dtype.name, tangent.shape


def vjp_with_float0(wrap: Any) -> Any:
    outputs, pullback = jax.vjp(wrap(lambda x, n: (x * 2, n + 1)), X, jnp.arange(3))
    first, second = pullback((Y, np.zeros(3, jax.dtypes.float0)))
    return outputs, first, second.dtype.name


def vjp(wrap: Any) -> Any:
    outputs, pullback = jax.vjp(wrap(lambda x, y: (mix(x, y), x * y, y)), X, Y)
    return outputs, pullback((X, Y, X)), pullback((Y, X, X))


def vjp_of_boolean_output(wrap: Any) -> Any:
    (value, positive), pullback = jax.vjp(wrap(lambda x: (jnp.abs(x), x > 0)), X)
    return value, positive, pullback((Y, np.zeros(X.shape, jax.dtypes.float0)))


def zero_cotangents(wrap: Any) -> Any:
    return jax.grad(lambda x: wrap(lambda x: (jnp.sin(x).sum(), jnp.cos(x)))(x)[0])(X)


def output_without_input(wrap: Any) -> Any:
    return jax.grad(lambda x: wrap(lambda x: (x.sum(), jnp.ones(3)))(x)[0])(X)


def gradient_is_zero(wrap: Any) -> Any:
    return jax.grad(lambda x: wrap(lambda x: jax.lax.stop_gradient(x) * 2.0)(x).sum())(X)


def stop_gradient(wrap: Any) -> Any:
    return jax.grad(wrap(lambda x: (x * jax.lax.stop_gradient(jnp.exp(x))).sum()))(X)


def passed_through(wrap: Any) -> Any:
    return jax.grad(lambda x: sum(map(jnp.sum, wrap(lambda x: (x, x, x * x))(x))))(X)


def dead_arguments(wrap: Any) -> Any:
    return jax.grad(wrap(lambda x, y: jnp.sin(x).sum()), argnums=(0, 1))(X, Y)


def scalar_argument(wrap: Any) -> Any:
    f = wrap(lambda t: jnp.exp(t) * t)
    return jax.grad(f)(0.5), jax.value_and_grad(f)(jnp.float32(2.0))


def jvp(wrap: Any) -> Any:
    return jax.jvp(wrap(mix), (X, Y), (Y, X))


def jvp_of_some_arguments(wrap: Any) -> Any:
    return jax.jvp(lambda x: wrap(mix)(x, Y), (X,), (Y,))


def jvp_of_integers(wrap: Any) -> Any:
    n = jnp.arange(4)
    outputs, tangents = jax.jvp(wrap(lambda x, n: (x * n, n)), (V, n), (V, np.zeros(4, jax.dtypes.float0)))
    return outputs, tangents[0], tangents[1].dtype.name


def jacfwd(wrap: Any) -> Any:
    return jax.jacfwd(wrap(wave))(V)


def jacrev(wrap: Any) -> Any:
    return jax.jacrev(wrap(softmax))(V)


def jacobians_of_pytrees(wrap: Any) -> Any:
    f = wrap(lambda p, x: {"out": dense(p, x)})
    return jax.jacfwd(f)(PARAMS, V), jax.jacrev(f, argnums=1)(PARAMS, V)


def hessian(wrap: Any) -> Any:
    return jax.hessian(wrap(energy))(V)


def hessian_reverse_over_reverse(wrap: Any) -> Any:
    return jax.jacrev(jax.jacrev(wrap(energy)))(V)


def reverse_over_forward(wrap: Any) -> Any:
    return jax.jacrev(jax.jacfwd(wrap(energy)))(V)


def hessian_vector_product(wrap: Any) -> Any:
    return jax.jvp(jax.grad(wrap(energy)), (V,), (W[0],))


def grad_of_grad(wrap: Any) -> Any:
    return jax.grad(lambda x: (jax.grad(wrap(energy))(x) ** 2).sum())(X)


def third_derivative(wrap: Any) -> Any:
    return jax.grad(jax.grad(jax.grad(wrap(lambda t: jnp.sin(t) * t**3))))(0.7)


def taylor_mode_by_jvps(wrap: Any) -> Any:
    def along(f: Any) -> Any:
        return lambda t: jax.jvp(f, (t,), (1.0,))[1]

    return along(along(along(wrap(lambda t: jnp.tanh(t) * jnp.exp(t)))))(0.3)


def linearize(wrap: Any) -> Any:
    value, pushforward = jax.linearize(wrap(mix), X, Y)
    return value, pushforward(Y, X), jax.vmap(pushforward)(jnp.stack([X, Y]), jnp.stack([Y, X]))


def linear_transpose(wrap: Any) -> Any:
    return jax.linear_transpose(wrap(lambda x: (x @ W, x.sum(0) * 3)), X)((Y, V))


def linear_transpose_with_fixed(wrap: Any) -> Any:
    return jax.linear_transpose(lambda x: wrap(lambda w, x: x @ w)(W, x), X)(Y)


def checked_numerically(wrap: Any) -> Any:
    check_grads(wrap(lambda x: jnp.sin(x) * x), (V,), order=2, modes=("fwd", "rev"), atol=3e-2, rtol=3e-2)
    return ()


def complex_gradient(wrap: Any) -> Any:
    return jax.grad(wrap(lambda z: jnp.abs(z * z).sum()), holomorphic=False)(X + 1j * Y)


def bfloat16_gradient(wrap: Any) -> Any:
    return jax.grad(wrap(lambda x: (x * x).sum().astype(jnp.float32)))(X.astype(jnp.bfloat16))


def float64_gradient(wrap: Any) -> Any:
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(X), jnp.float64)
        return jax.grad(wrap(energy))(x), jax.hessian(wrap(energy))(x[0])


def key_argument(wrap: Any) -> Any:
    f = wrap(lambda key, x: (x * jax.random.normal(key, x.shape)).sum())
    return jax.grad(f, argnums=1)(jax.random.key(0), X)


def key_output(wrap: Any) -> Any:
    f = wrap(lambda key, x: (jax.random.fold_in(key, 1), (x**2).sum()))
    return jax.grad(lambda x: f(jax.random.key(0), x)[1])(X)


def closed_over_tracer(wrap: Any) -> Any:
    return jax.grad(lambda y: wrap(lambda x: x * y + y)(X).sum())(Y)


def closed_over_tracer_forward(wrap: Any) -> Any:
    return jax.jvp(lambda y: wrap(lambda x: x * jnp.sin(y))(X), (Y,), (X,))


def closed_over_tracers_of_two_levels(wrap: Any) -> Any:
    def outer(a: Any) -> Any:
        return jax.grad(lambda b: (wrap(lambda x: x * a * jnp.exp(b))(X) ** 2).sum())(Y).sum()

    return jax.grad(outer)(X)


def zero_size_gradient(wrap: Any) -> Any:
    return jax.grad(wrap(lambda x: (x**2).sum()))(jnp.zeros((0, 3)))


CASES = (
    *(grad, grad_of_layer_norm, grad_of_softmax, grad_of_some_arguments, grad_of_pytree, grad_of_keyword),
    *(grad_under_jit, grad_inside, grad_outside_and_inside, value_and_grad, value_and_grad_has_aux, grad_of_integers),
    *(vjp_with_float0, vjp, vjp_of_boolean_output, zero_cotangents, output_without_input, gradient_is_zero),
    *(stop_gradient, passed_through, dead_arguments, scalar_argument, jvp, jvp_of_some_arguments, jvp_of_integers),
    *(jacfwd, jacrev, jacobians_of_pytrees, hessian, hessian_reverse_over_reverse, reverse_over_forward),
    *(hessian_vector_product, grad_of_grad, third_derivative, taylor_mode_by_jvps, linearize, linear_transpose),
    *(linear_transpose_with_fixed, checked_numerically, complex_gradient, bfloat16_gradient, float64_gradient),
    *(key_argument, key_output, closed_over_tracer, closed_over_tracer_forward, closed_over_tracers_of_two_levels),
    zero_size_gradient,
)
