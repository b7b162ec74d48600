"""Functions become jaxprs that hold nothing but equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpr2triton._compat import user_frame
from jaxpr2triton.ir.tracing import argument_names
from jaxpr2triton.normalize import normalize
from jaxpr2triton.trace import hoist, jaxpr_function, trace_flat

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([1, 2, 3], np.float32)


def test_arrays_become_leading_operands_and_scalars_literals() -> None:
    scale, shift = jnp.asarray(3.0, jnp.float32), np.float32(4)
    closed, consts = trace_flat(lambda x: x * W + scale - shift, [X])
    assert str(closed) == (
        "{ lambda ; a:f32[3] b:f32[2,3]. let\n"
        "    c:f32[1,3] = broadcast_in_dim[broadcast_dimensions=(1,)] a\n"
        "    d:f32[2,3] = mul b c\n"
        "    e:f32[2,3] = add d 3.0:f32[]\n"
        "    f:f32[2,3] = sub e 4.0:f32[]\n"
        "  in (f,) }"
    )
    assert closed.consts == []
    np.testing.assert_array_equal(consts, [W])
    np.testing.assert_array_equal(jaxpr_function(closed)(*consts, X)[0], X * W - 1)


def test_a_weak_scalar_keeps_the_type_of_the_result() -> None:
    weak = jnp.asarray(2.0)
    closed, consts = trace_flat(lambda n: n * weak, [1.5])
    assert consts == []
    assert closed.out_avals == jax.make_jaxpr(lambda n: n * 2.0)(1.5).out_avals


def test_arrays_inside_nested_calls_are_operands_too() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return jax.jit(lambda x: x * W + jnp.float32(1))(x)

    closed, consts = trace_flat(lambda x: inner(x) + W + inner(x), [X])
    assert len(consts) == 1
    assert closed.consts == []
    np.testing.assert_array_equal(jaxpr_function(closed)(*consts, X)[0], 2 * (X * W + 1) + W)


def test_arrays_inside_loops_and_branches_are_operands_too() -> None:
    scaled = jax.jit(lambda x: x * W)

    def function(x: Any) -> Any:
        looped, ys = jax.lax.scan(lambda c, y: (scaled(c) + y, c), x, jnp.stack([x, x]), reverse=True)
        return jax.lax.cond(x[0, 0] > 0, lambda x: scaled(x) + 1, lambda x: x, looped), ys

    closed, consts = hoist(jax.make_jaxpr(function)(X))
    assert len(consts) == 1
    assert not any(inner.consts for eqn in closed.jaxpr.eqns for inner in bodies(eqn))
    found = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, W, X)
    for got, wanted in zip(found, jax.jit(function)(X), strict=True):
        np.testing.assert_allclose(got, wanted)


def bodies(eqn: Any) -> list[Any]:
    params = eqn.params
    return [params["jaxpr"]] if "jaxpr" in params else list(params.get("branches", ()))


def test_nested_calls_without_arrays_stay() -> None:
    closed, _ = trace_flat(lambda x: jax.jit(jnp.sin)(x) * W, [X])
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns] == ["jit", "broadcast_in_dim", "mul"]


def test_hoisting_from_a_jaxpr() -> None:
    inner = jax.jit(lambda x: x * W + jnp.float32(1))
    traced = jax.make_jaxpr(lambda x: inner(x) + W + jnp.asarray(2.0))(X)
    closed, consts = hoist(traced)
    assert [const.shape for const in consts] == [(3,)]
    assert argument_names(closed) == ["c0", "x"]
    np.testing.assert_array_equal(jaxpr_function(closed)(*consts, X)[0], X * W + 1 + W + 2)
    assert hoist(closed) == (closed, [])


def test_derivative_rules_are_kept_together_with_their_arrays() -> None:
    @jax.custom_jvp
    def custom(x: Any) -> Any:
        return jax.jit(lambda x: x * W)(x)

    custom.defjvp(lambda primals, tangents: (custom(*primals), 7 * tangents[0]))
    closed, consts = trace_flat(lambda x: custom(x).sum(), [X])
    assert consts == []
    np.testing.assert_array_equal(jax.grad(lambda x: jaxpr_function(closed)(x)[0])(X), np.full_like(X, 7))
    np.testing.assert_allclose(jaxpr_function(normalize(closed))(X)[0], (X * W).sum())


def test_tracers_of_an_outer_trace_stay_outside() -> None:
    def outer(x: Any, w: Any) -> Any:
        closed, consts = trace_flat(lambda y: jax.jit(lambda y: y * w + x)(y) * x, [w])
        assert closed.consts == []
        assert sorted(map(id, consts)) == sorted([id(x), id(w)])
        return jaxpr_function(closed)(*consts, w)[0].sum()

    def plain(x: Any, w: Any) -> Any:
        return ((w * w + x) * x).sum()

    with jax.checking_leaks():
        value = jax.jit(jax.vmap(jax.grad(outer)))(X, X + 1)
    np.testing.assert_allclose(value, jax.vmap(jax.grad(plain))(X, X + 1))


@pytest.mark.parametrize("argument", [X, jax.ShapeDtypeStruct((2, 3), np.float32), jax.typeof(jnp.asarray(X))])
def test_arguments_may_be_arrays_shapes_or_avals(argument: Any) -> None:
    closed, _ = trace_flat(jnp.sin, [argument])
    assert [aval.str_short() for aval in closed.in_avals] == ["float32[2,3]"]


def test_names_and_lines_of_the_user_are_kept() -> None:
    inner = jax.jit(lambda x: x * W)

    def user(alpha: Any, beta: Any) -> Any:
        return inner(alpha) + beta

    closed, _ = trace_flat(user, [X, X])
    assert argument_names(closed) == ["c0", "alpha", "beta"]
    frames = [user_frame(eqn) for eqn in closed.jaxpr.eqns]
    assert {frame.function.split(".")[-1] for frame in frames if frame} == {"<lambda>", "user"}
    assert all(frame is not None and frame.file == __file__ for frame in frames)


def test_given_names_win() -> None:
    closed, _ = trace_flat(lambda *flat: flat[0] + flat[1], [X, X], ["params_w", "x"])
    assert argument_names(closed) == ["params_w", "x"]


def test_keys_and_float0_are_operands_like_others() -> None:
    key = jax.random.key(0)
    closed, consts = trace_flat(lambda x: jax.random.normal(key, (3,)) + x, [X])
    assert len(consts) == 1 and closed.consts == []
    np.testing.assert_allclose(jaxpr_function(closed)(*consts, X)[0], jax.random.normal(key, (3,)) + X, rtol=1e-6)
    closed, _ = trace_flat(lambda z: z, [np.zeros(3, jax.dtypes.float0)])
    assert closed.out_avals[0].dtype == jax.dtypes.float0
