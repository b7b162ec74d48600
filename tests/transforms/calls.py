"""Cases: everything about calling, before any derivative.

A case takes `wrap`, which is `jax.jit` or `fuse`, and gives something to compare.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.transforms.functions import PARAMS, V, X, Y, dense, layer_norm, mix, softmax, wave


def one_argument(wrap: Any) -> Any:
    return wrap(wave)(X)


def several_arguments(wrap: Any) -> Any:
    return wrap(layer_norm)(X, V, V)


def keyword_arguments(wrap: Any) -> Any:
    return wrap(layer_norm)(X, bias=V, scale=V)


def default_arguments(wrap: Any) -> Any:
    @wrap
    def scaled(x: Any, factor: Any = 3.0, *, offset: Any = 1) -> Any:
        return x * factor + offset

    return scaled(X), scaled(X, 2.0), scaled(X, offset=7)


def variadic_arguments(wrap: Any) -> Any:
    @wrap
    def total(*xs: Any, **more: Any) -> Any:
        return sum(xs) + more["y"] * 2 + more["z"]["deep"]

    return total(X, Y, y=X, z={"deep": Y})


def pytrees_in_and_out(wrap: Any) -> Any:
    @wrap
    def f(tree: Any, pair: Any) -> Any:
        return {"h": dense(tree, pair[0]), "rest": [pair[1][0], (pair[1][0] * 2,)]}

    return f(PARAMS, (X, [V]))


def none_in_and_out(wrap: Any) -> Any:
    @wrap
    def f(x: Any, mask: Any, empty: Any) -> Any:
        return (x if mask is None else x * mask), None, empty

    return f(X, None, ()), f(X, Y, [None])


def custom_node(wrap: Any) -> Any:
    @wrap
    def f(point: Point) -> Point:
        return Point(point.y * 2, point.x + point.y, point.tag)

    out = f(Point(X, Y, "kept"))
    return out.x, out.y, out.tag


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "y"], meta_fields=["tag"])
@dataclass
class Point:
    x: Any
    y: Any
    tag: str


def static_by_number(wrap: Any) -> Any:
    f = wrap(lambda x, n, how: (x**n).sum(0) if how == "sum" else x * n, static_argnums=(1, 2))
    return f(X, 3, "sum"), f(X, 2, "times"), f(X, 3, "sum")


def static_by_name(wrap: Any) -> Any:
    @functools.partial(wrap, static_argnames="axes")
    def f(x: Any, axes: Any) -> Any:
        return x.sum(axes)

    return f(X, axes=(0, 1)), f(X, (1,))


def static_negative_number(wrap: Any) -> Any:
    return wrap(lambda x, k: x * k, static_argnums=-1)(X, 5)


def static_node(wrap: Any) -> Any:
    """A static argument that is also a pytree of numbers stays what it is."""
    return wrap(lambda x, shape: x.reshape(shape), static_argnums=1)(X, (4, 3))


def static_function(wrap: Any) -> Any:
    f = wrap(lambda g, x: g(x), static_argnums=0)
    return f(wave, X), f(jnp.cos, X)


def donated(wrap: Any) -> Any:
    return wrap(lambda x, y: x + y, donate_argnums=0)(X + 0, Y)


def donated_by_name(wrap: Any) -> Any:
    return wrap(mix, donate_argnames=("x",))(X + 0, Y)


def inlined(wrap: Any) -> Any:
    return jax.jit(lambda x: wrap(wave, inline=True)(x) * 2)(X)


def numpy_inputs(wrap: Any) -> Any:
    return wrap(mix)(np.asarray(X), np.arange(4, dtype=np.float32))


def numpy_float64_is_canonical(wrap: Any) -> Any:
    return wrap(wave)(np.linspace(0, 1, 5))


def python_scalars(wrap: Any) -> Any:
    f = wrap(lambda x, k: x * k)
    return f(2.0, 3), f(2, 3), f(True, 2.5), f(V.astype(jnp.bfloat16), 2.0), f(V, 2)


def weak_types(wrap: Any) -> Any:
    f = wrap(lambda x: (x, x * 2, jnp.float32(1) * x))
    return [out.aval.weak_type for x in (1.0, 1, jnp.float32(2)) for out in f(x)]


def scalar_arrays(wrap: Any) -> Any:
    return wrap(mix)(jnp.float32(0.3), jnp.float32(-0.7))


def zero_size(wrap: Any) -> Any:
    return wrap(lambda x: (x * 2, x.sum(), x.sum(0)))(jnp.zeros((0, 3)))


def size_one(wrap: Any) -> Any:
    return wrap(layer_norm)(jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1))


def integers(wrap: Any) -> Any:
    n = jnp.arange(-6, 6)
    return wrap(lambda n: (n // 4, n % 5, n << 1, n & 3, n.sum()))(n)


def booleans(wrap: Any) -> Any:
    return wrap(lambda x, y: ((x > y) & (x > 0), (x > y).any(1), jnp.where(x > y, x, y)))(X, Y)


def small_integers(wrap: Any) -> Any:
    return wrap(lambda n: (n * 3, n + n))(jnp.arange(100, dtype=jnp.uint8))


def bfloat16(wrap: Any) -> Any:
    return wrap(lambda x, y: x * y + x)(X.astype(jnp.bfloat16), Y.astype(jnp.bfloat16))


def float16(wrap: Any) -> Any:
    return wrap(softmax)(X.astype(jnp.float16))


def float64(wrap: Any) -> Any:
    with jax.enable_x64(True):
        return wrap(layer_norm)(*(jnp.asarray(np.asarray(a), jnp.float64) for a in (X, V, V)))


def complex64(wrap: Any) -> Any:
    return wrap(lambda x: (x * x.conj()).real + jnp.abs(x))(X + 1j * Y)


def typed_key(wrap: Any) -> Any:
    return wrap(lambda key, x: x + jax.random.normal(key, x.shape))(jax.random.key(3), X)


def key_passed_on(wrap: Any) -> Any:
    def f(key: Any) -> Any:
        key, other = jax.random.split(key)
        return key, jax.random.uniform(other, (3,))

    key, drawn = wrap(f)(jax.random.key(1))
    return jax.random.key_data(key), drawn


def raw_key(wrap: Any) -> Any:
    return wrap(lambda key: jax.random.bits(key, (5,)))(jax.random.PRNGKey(7))


def closed_over_array(wrap: Any) -> Any:
    table = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    return wrap(lambda x: x * table + V)(X)


def closed_over_number(wrap: Any) -> Any:
    factor = np.float32(1.5)
    return wrap(lambda x: x * factor)(X)


def duplicate_and_passed_through(wrap: Any) -> Any:
    return wrap(lambda x, y: (x, x, y * 2, y, 3.0, jnp.ones(2)))(X, Y)


def same_argument_twice(wrap: Any) -> Any:
    return wrap(mix)(X, X)


def no_arguments(wrap: Any) -> Any:
    return wrap(lambda: jnp.arange(5.0) ** 2)()


def unused_arguments(wrap: Any) -> Any:
    return wrap(lambda x, y, z: y * 2)(X, Y, V)


def partial_function(wrap: Any) -> Any:
    return wrap(functools.partial(mix, Y))(X)


def callable_object(wrap: Any) -> Any:
    class Scale:
        def __call__(self, x: Any) -> Any:
            return x * 4

    return wrap(Scale())(X)


def method_by_decorator(wrap: Any) -> Any:
    return Model(wrap).apply(X)


class Model:
    def __init__(self, wrap: Any) -> None:
        class Inner:
            factor = 3.0

            @functools.partial(wrap, static_argnums=0)
            def apply(self, x: Any) -> Any:
                return x * self.factor

        self.apply = Inner().apply


def bound_method(wrap: Any) -> Any:
    class Model:
        factor = 2.5

        def apply(self, x: Any) -> Any:
            return wave(x) * self.factor

    return wrap(Model().apply)(X)


def wrapped_attributes(wrap: Any) -> Any:
    f = wrap(layer_norm)
    return f.__name__, f.__doc__, f.__module__, str(inspect.signature(f))


def many_shapes(wrap: Any) -> Any:
    f = wrap(softmax)
    return [f(jnp.ones(shape)) for shape in ((2,), (2, 3), (1, 5, 2))]


def called_twice(wrap: Any) -> Any:
    traces = []

    @wrap
    def f(x: Any) -> Any:
        traces.append(x.shape)
        return x + 1

    return f(X), f(X), f(V), traces


def nested(wrap: Any) -> Any:
    inner = wrap(wave)
    return wrap(lambda x: inner(x) + inner(x * 2).sum())(X)


def recursion(wrap: Any) -> Any:
    @functools.partial(wrap, static_argnums=1)
    def tower(x: Any, height: int) -> Any:
        return x if height == 0 else jnp.sin(tower(x, height - 1)) + x

    return tower(X, 4)


CASES = (
    *(one_argument, several_arguments, keyword_arguments, default_arguments, variadic_arguments, pytrees_in_and_out),
    *(none_in_and_out, custom_node, static_by_number, static_by_name, static_negative_number, static_node),
    *(static_function, donated, donated_by_name, inlined, numpy_inputs, numpy_float64_is_canonical, python_scalars),
    *(weak_types, scalar_arrays, zero_size, size_one, integers, booleans, small_integers, bfloat16, float16, float64),
    *(complex64, typed_key, key_passed_on, raw_key, closed_over_array, closed_over_number),
    *(duplicate_and_passed_through, same_argument_twice, no_arguments, unused_arguments, partial_function),
    *(callable_object, method_by_decorator, bound_method, wrapped_attributes, many_shapes, called_twice, nested),
    recursion,
)
