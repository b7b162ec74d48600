"""What kernels do not know passes through, and long programs pass through quickly."""

from __future__ import annotations

import gc
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpr2triton.normalize import normalize
from jaxpr2triton.trace import jaxpr_function, trace_flat
from tests.normalize.passing import primitives_of, traced

X = np.arange(48, dtype=np.float32).reshape(16, 3)


def test_keys_complex_numbers_float0_and_int4() -> None:
    def function(key: Any, zero: Any, z: Any, q: Any, raw: Any) -> Any:
        one, other = jax.random.split(key)
        noise = jax.random.normal(one, (3,)) + jax.random.uniform(other, (3,)) + jax.random.normal(raw, (3,))
        return noise, other, zero, z * z * 1 + lax.integer_pow(z, 3), q + q, z * 0

    args = (
        jax.random.key(0),
        np.zeros(3, jax.dtypes.float0),
        np.array([1 + 2j, 3j], np.complex64),
        jnp.array([1, -2], jnp.int4),
        jax.random.PRNGKey(1),
    )
    before = traced(function, *args)
    result = normalize(before)
    assert result.out_avals == before.out_avals
    for expected, actual in zip(jaxpr_function(before)(*args), jaxpr_function(result)(*args), strict=True):
        if jnp.issubdtype(expected.dtype, jax.dtypes.prng_key):
            expected, actual = jax.random.key_data(expected), jax.random.key_data(actual)
        if expected.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(np.asarray(actual, np.complex64), np.asarray(expected, np.complex64), rtol=1e-6)


def test_references_inside() -> None:
    def function(x: Any) -> Any:
        cell = jax.new_ref(x * 1)
        cell[...] += 1.0
        first = cell[...]
        cell[...] *= 2.0
        return first * cell[...]

    result = normalize(traced(function, X))
    np.testing.assert_array_equal(jaxpr_function(result)(X)[0], (X + 1) * (X + 1) * 2)


def test_programs_of_references_are_returned_as_they_are() -> None:
    before = traced(lambda cell: cell[...] * 1, jax.new_ref(jnp.ones(3)))
    assert normalize(before) is before


def test_callbacks_and_loops() -> None:
    def function(x: Any) -> Any:
        called = jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((3,), np.float32), x)
        summed = lax.fori_loop(0, 3, lambda i, c: c + jax.nn.relu(x), called)
        return lax.cond(x[0] > 0, jnp.sin, jnp.cos, summed), lax.scan(lambda c, t: (c + t, c), 0.0, x)[1]

    result = normalize(traced(function, X[1]))
    for expected, actual in zip(function(X[1]), jaxpr_function(result)(X[1]), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_inside_a_shard_map() -> None:
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    def user(x: Any, w: Any) -> Any:
        scaled = jax.nn.softmax(x) * w * 1.0 + jnp.where(x > 0, x, 0.0) ** 3 + jnp.sqrt(2.0)
        return lax.psum(scaled.sum(0), "i") * lax.axis_index("i"), jnp.zeros((2, 0)) + x[0, 0]

    def normalized(x: Any, w: Any) -> Any:
        closed, consts = trace_flat(user, [x, w])
        result = normalize(closed)
        assert list(map(str, result.out_avals)) == list(map(str, closed.out_avals))
        return tuple(jaxpr_function(result)(*consts, x, w))

    def sharded(function: Any) -> Any:
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P("i"), P()), out_specs=(P("i"), P("i"))))

    w = np.array([1, 2, 3], np.float32)
    for expected, actual in zip(sharded(user)(X, w), sharded(normalized)(X, w), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_nothing_leaks() -> None:
    def function(x: Any, w: Any) -> Any:
        closed, consts = trace_flat(lambda y: jax.jit(lambda y: y * w + x * 1.0)(y) * x + y * w, [w])
        return jaxpr_function(normalize(closed))(*consts, w)[0].sum()

    with jax.checking_leaks():
        value = jax.jit(jax.vmap(jax.grad(function)))(X, X + 1)
    np.testing.assert_allclose(value, (X + 1) ** 2 + 2 * X, rtol=1e-6)


def test_output_types_are_kept_exactly() -> None:
    def function(x: Any, n: Any, i: Any) -> Any:
        return x, x * 1, n, n * 1, n * 1.0, i + 0, 2.0, jnp.float32(2), jnp.sqrt(2.0), x.astype(np.float32), n + x[0, 0]

    before = traced(function, X, 1.5, 3)
    result = normalize(before)
    assert [(a.shape, a.dtype, a.weak_type) for a in result.out_avals] == [
        (a.shape, a.dtype, a.weak_type) for a in before.out_avals
    ]
    assert set(primitives_of(result)) <= {"add", "convert_element_type", "slice", "squeeze", "reshape"}


def test_time_grows_with_the_length() -> None:
    def long(x: Any, repeats: int) -> Any:
        for _ in range(repeats):
            x = jnp.sin(x) ** 3 * 1.0 + jnp.where(x > 0, x, 0.0) - (-x)
        return x

    def seconds(repeats: int) -> float:
        before = traced(lambda x: long(x, repeats), X)
        gc.collect()
        gc.disable()  # a collection looks at everything that the tests before have left
        try:
            start = time.process_time()
            normalize(before)
            return time.process_time() - start
        finally:
            gc.enable()

    seconds(10)
    short, tall = seconds(40), seconds(320)
    assert tall < 8 * short * 2.5
    assert tall < 10
