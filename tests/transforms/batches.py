"""Cases: vmap, alone and with derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tests.transforms.functions import PARAMS, V, W, X, Y, dense, energy, layer_norm, mix, normal, softmax, wave

B = normal(2, 3, 4)


def vmap(wrap: Any) -> Any:
    return jax.vmap(wrap(wave))(B)


def vmap_of_layer_norm(wrap: Any) -> Any:
    return jax.vmap(wrap(layer_norm), in_axes=(0, None, None))(B, V, V)


def in_axes(wrap: Any) -> Any:
    return jax.vmap(wrap(mix), in_axes=(1, None))(X, normal(3)), jax.vmap(wrap(mix), in_axes=(None, -1))(normal(3), X)


def out_axes(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda x: (x, x.sum())), in_axes=1, out_axes=(2, 0))(B)


def out_axes_none(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda x, y: (x * 2, y * 3)), in_axes=(0, None), out_axes=(0, None))(X, V)


def axis_size(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda: jnp.arange(3.0)), axis_size=2)()


def pytree_in_axes(wrap: Any) -> Any:
    return jax.vmap(wrap(dense), in_axes=({"w": None, "b": None}, 0))(PARAMS, X)


def batched_parameters(wrap: Any) -> Any:
    params = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), PARAMS)
    return jax.vmap(wrap(dense), in_axes=(0, None))(params, X)


def nested_vmap(wrap: Any) -> Any:
    return jax.vmap(jax.vmap(wrap(mix), (0, None)), (None, 0))(X, Y)


def vmap_inside(wrap: Any) -> Any:
    return wrap(jax.vmap(softmax))(B)


def vmap_inside_and_outside(wrap: Any) -> Any:
    return jax.vmap(wrap(jax.vmap(mix, in_axes=(0, None))))(B, normal(2, 4))


def vmap_of_grad(wrap: Any) -> Any:
    return jax.vmap(jax.grad(wrap(energy)))(B)


def grad_of_vmap(wrap: Any) -> Any:
    return jax.grad(lambda x: jax.vmap(wrap(energy))(x).sum())(B)


def per_example_gradients(wrap: Any) -> Any:
    loss = wrap(lambda p, x: (dense(p, x) ** 2).sum())
    return jax.vmap(jax.grad(loss), in_axes=(None, 0))(PARAMS, X)


def vmap_of_hessian(wrap: Any) -> Any:
    return jax.vmap(jax.hessian(wrap(energy)))(X)


def vmap_of_jvp(wrap: Any) -> Any:
    return jax.vmap(lambda x, t: jax.jvp(wrap(wave), (x,), (t,)))(X, Y)


def jit_of_vmap_of_value_and_grad(wrap: Any) -> Any:
    return jax.jit(jax.vmap(jax.value_and_grad(wrap(energy))))(B)


def axis_name_with_collective(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda x: x - jax.lax.pmean(x, "rows")), axis_name="rows")(X)


def axis_name_unused(wrap: Any) -> Any:
    return jax.vmap(wrap(wave), axis_name="rows")(X)


def gradient_through_collective(wrap: Any) -> Any:
    f = jax.vmap(wrap(lambda x: jnp.sin(x) * jax.lax.psum(x, "rows")), axis_name="rows")
    return jax.grad(lambda x: f(x).sum())(X)


def axis_index(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda x: x * jax.lax.axis_index("rows")), axis_name="rows")(X)


def spmd_axis_name(wrap: Any) -> Any:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        return jax.jit(jax.vmap(wrap(wave), spmd_axis_name="data"))(normal(8, 3))


def batched_keys(wrap: Any) -> Any:
    keys = jax.random.split(jax.random.key(0), 3)
    return jax.vmap(wrap(lambda key: jax.random.uniform(key, (2,))))(keys)


def batched_integers(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda n: n * 2 + 1))(jnp.arange(5))


def closed_over_batch(wrap: Any) -> Any:
    return jax.vmap(lambda y: wrap(lambda x: x * y)(V))(X)


def batch_of_dynamic_index(wrap: Any) -> Any:
    return jax.vmap(wrap(lambda x, i: x[i] * 2), in_axes=(None, 0))(X, jnp.array([2, 0]))


def batch_of_matmul(wrap: Any) -> Any:
    return jax.vmap(wrap(jnp.dot), in_axes=(0, None))(B, W)


def custom_vmap(wrap: Any) -> Any:
    @jax.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return x * 2

    @f.def_vmap
    def _(axis_size: int, in_batched: Any, x: Any) -> Any:
        return x * 2, in_batched[0]

    return wrap(lambda x: f(x) + 1)(V), jax.vmap(wrap(lambda x: f(x) + 1))(X)


CASES = (
    *(vmap, vmap_of_layer_norm, in_axes, out_axes, out_axes_none, axis_size, pytree_in_axes, batched_parameters),
    *(nested_vmap, vmap_inside, vmap_inside_and_outside, vmap_of_grad, grad_of_vmap, per_example_gradients),
    *(vmap_of_hessian, vmap_of_jvp, jit_of_vmap_of_value_and_grad, axis_name_with_collective, axis_name_unused),
    *(gradient_through_collective, axis_index, spmd_axis_name, batched_keys, batched_integers, closed_over_batch),
    *(batch_of_dynamic_index, batch_of_matmul, custom_vmap),
)
