"""Cases: devices, contexts, threads, effects, and what may be asked of the function besides calling it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.transforms.functions import V, W, X, Y, energy, layer_norm, mix, normal, softmax, wave

ROWS = normal(8, 4)


def _mesh(axis_type: Any = AxisType.Auto) -> Any:
    return jax.make_mesh((8,), ("data",), axis_types=(axis_type,))


def shard_map(wrap: Any) -> Any:
    f = jax.shard_map(wrap(softmax), mesh=_mesh(), in_specs=P("data"), out_specs=P("data"))
    return f(ROWS), jax.jit(f)(ROWS)


def shard_map_with_replicated(wrap: Any) -> Any:
    return jax.shard_map(wrap(layer_norm), mesh=_mesh(), in_specs=(P("data"), P(), P()), out_specs=P("data"))(
        ROWS, V, V
    )


def shard_map_with_collective(wrap: Any) -> Any:
    def centred(x: Any) -> Any:
        return x - jax.lax.pmean(x, "data")

    return jax.shard_map(wrap(centred), mesh=_mesh(), in_specs=P("data"), out_specs=P("data"))(ROWS)


def grad_of_shard_map(wrap: Any) -> Any:
    f = jax.shard_map(wrap(layer_norm), mesh=_mesh(), in_specs=(P("data"), P(), P()), out_specs=P("data"))
    return jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2)))(ROWS, V, V)


def grad_of_shard_map_with_reduction(wrap: Any) -> Any:
    def total(x: Any) -> Any:
        return jax.lax.psum(wrap(energy)(x), "data")

    f = jax.shard_map(total, mesh=_mesh(), in_specs=P("data"), out_specs=P())
    return f(ROWS), jax.grad(f)(ROWS), jax.jit(jax.grad(f))(ROWS)


def grad_inside_shard_map(wrap: Any) -> Any:
    gradient = jax.shard_map(jax.grad(wrap(energy)), mesh=_mesh(), in_specs=P("data"), out_specs=P("data"))
    return gradient(ROWS)


def fused_shard_map(wrap: Any) -> Any:
    return wrap(jax.shard_map(wave, mesh=_mesh(), in_specs=P("data"), out_specs=P("data")))(ROWS)


def grad_of_fused_shard_map(wrap: Any) -> Any:
    f = jax.shard_map(lambda x, w: jnp.sin(x @ w), mesh=_mesh(), in_specs=(P("data"), P()), out_specs=P("data"))
    return jax.grad(wrap(lambda x, w: f(x, w).sum()), argnums=(0, 1))(ROWS, W)


def unchecked_shard_map(wrap: Any) -> Any:
    f = jax.shard_map(wrap(wave), mesh=_mesh(), in_specs=P("data"), out_specs=P("data"), check_vma=False)
    return jax.grad(lambda x: f(x).sum())(ROWS)


def sharded_inputs(wrap: Any) -> Any:
    sharding = NamedSharding(_mesh(), P("data", None))
    return wrap(wave)(jax.device_put(ROWS, sharding))


def sharded_gradient(wrap: Any) -> Any:
    x = jax.device_put(ROWS, NamedSharding(_mesh(), P("data", None)))
    return jax.jit(jax.value_and_grad(wrap(energy)))(x)


def explicit_sharding(wrap: Any) -> Any:
    mesh = _mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        x = jax.device_put(ROWS, NamedSharding(mesh, P("data", None)))
        return wrap(wave)(x), jax.jit(jax.grad(lambda x: wrap(wave)(x).sum()))(x)


def explicit_sharding_of_a_batch(wrap: Any) -> Any:
    mesh = _mesh(AxisType.Explicit)
    with jax.set_mesh(mesh):
        x = jax.device_put(ROWS, NamedSharding(mesh, P("data", None)))
        return jax.vmap(wrap(softmax))(x), jax.jit(jax.vmap(jax.grad(wrap(energy))))(x)


def sharding_options(wrap: Any) -> Any:
    sharding = NamedSharding(_mesh(), P("data", None))
    out = wrap(wave, in_shardings=sharding, out_shardings=sharding)(ROWS)
    return out, out.sharding == sharding


def sharding_constraint_inside(wrap: Any) -> Any:
    sharding = NamedSharding(_mesh(), P("data", None))
    f = wrap(lambda x: jax.lax.with_sharding_constraint(jnp.sin(x), sharding) * 2)
    return f(ROWS), jax.grad(lambda x: f(x).sum())(ROWS)


def other_device(wrap: Any) -> Any:
    device = jax.devices()[3]
    out = wrap(wave)(jax.device_put(X, device))
    return out, out.devices() == {device}


def default_device(wrap: Any) -> Any:
    with jax.default_device(jax.devices()[2]):
        return wrap(lambda: jnp.arange(3.0) * 2)()


def eval_shape(wrap: Any) -> Any:
    f = wrap(layer_norm)
    out = jax.eval_shape(f, X, V, V)
    own = f.eval_shape(jax.ShapeDtypeStruct((2, 5), jnp.bfloat16), jnp.ones(5), jnp.ones(5))
    return out.shape, out.dtype, own.shape, own.dtype, out.weak_type


def make_jaxpr(wrap: Any) -> Any:
    jaxpr = jax.make_jaxpr(jax.grad(wrap(energy)))(X)
    return [str(aval) for aval in jaxpr.out_avals], jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)


def lower_and_compile(wrap: Any) -> Any:
    lowered = wrap(mix).lower(X, Y)
    compiled = lowered.compile()
    return compiled(X, Y), str(lowered.out_info), "stablehlo" in lowered.as_text()


def trace_then_lower(wrap: Any) -> Any:
    traced = wrap(mix).trace(X, Y)
    return [str(aval) for aval in traced.jaxpr.out_avals], traced.lower().compile()(X, Y)


def lower_with_static(wrap: Any) -> Any:
    return wrap(lambda x, n: x * n, static_argnums=1).lower(X, 3).compile()(X)


def export(wrap: Any) -> Any:
    pytest.importorskip("flatbuffers", reason="jax.export writes files with flatbuffers")
    blob = jax.export.export(wrap(mix))(X, Y).serialize()
    return jax.export.deserialize(blob).call(X, Y)


def export_with_gradient(wrap: Any) -> Any:
    pytest.importorskip("flatbuffers", reason="jax.export writes files with flatbuffers")
    blob = jax.export.export(wrap(lambda x: energy(x)))(X).serialize(vjp_order=1)
    return jax.grad(jax.export.deserialize(blob).call)(X)


def checking_leaks(wrap: Any) -> Any:
    with jax.checking_leaks():
        return jax.jit(jax.vmap(jax.value_and_grad(wrap(energy))))(X)


def debug_nans(wrap: Any) -> Any:
    with jax.debug_nans(True):
        fine = wrap(wave)(X)
        try:
            wrap(jnp.log)(-jnp.abs(X))
        except FloatingPointError:
            return fine, "found"
    return fine, "not found"


def disable_jit(wrap: Any) -> Any:
    with jax.disable_jit():
        seen = []

        @wrap
        def f(x: Any) -> Any:
            seen.append(float(x.sum()))  # a number, not a tracer
            return x * 2

        return f(X), seen, jax.grad(wrap(energy))(X)


def named_scope(wrap: Any) -> Any:
    with jax.named_scope("outer"):
        return jax.jit(lambda x: wrap(jax.named_scope("inner")(wave))(x))(X)


def matmul_precision(wrap: Any) -> Any:
    with jax.default_matmul_precision("float32"):
        return wrap(jnp.dot)(X, W), jax.grad(wrap(lambda x: (x @ W).sum()))(X)


def strict_promotion(wrap: Any) -> Any:
    with jax.numpy_dtype_promotion("strict"):
        return wrap(mix)(X, Y), jax.grad(wrap(energy))(X)


def x64_and_back(wrap: Any) -> Any:
    f = wrap(lambda x: jnp.sin(x) * 2)
    first = f(np.linspace(0, 1, 3))
    with jax.enable_x64(True):
        second = f(np.linspace(0, 1, 3))
    return first, second, f(np.linspace(0, 1, 3))


def threads(wrap: Any) -> Any:
    f = wrap(energy)
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda k: jax.value_and_grad(f)(X * k), range(1, 7)))


def clear_caches(wrap: Any) -> Any:
    f = wrap(wave)
    first = jax.grad(lambda x: f(x).sum())(X)
    jax.clear_caches()
    return first, jax.grad(lambda x: f(x).sum())(X)


def printing(wrap: Any) -> Any:
    """Effects stay with XLA, in their order; so do their derivatives."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(("first", v.tolist())), x, ordered=True)
        y = jnp.sin(x)
        jax.debug.callback(lambda v: seen.append(("second", v.tolist())), y * 0 + 1, ordered=True)
        return y.sum()

    value = wrap(f)(V)
    jax.effects_barrier()
    return value, seen


def gradient_with_printing(wrap: Any) -> Any:
    seen: list[float] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return energy(x)

    gradient = jax.grad(wrap(f))(V)
    jax.effects_barrier()
    return gradient, seen


def pure_callback_inside(wrap: Any) -> Any:
    f = wrap(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, x, x, vmap_method="sequential") + 1)
    return f(X), jax.vmap(f)(X)


def reference_inside(wrap: Any) -> Any:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[...] += 1
        return ref[...] * 2

    return wrap(f)(X)


CASES = (
    *(shard_map, shard_map_with_replicated, shard_map_with_collective, grad_of_shard_map),
    *(grad_of_shard_map_with_reduction, grad_inside_shard_map, fused_shard_map, grad_of_fused_shard_map),
    *(
        unchecked_shard_map,
        sharded_inputs,
        sharded_gradient,
        explicit_sharding,
        explicit_sharding_of_a_batch,
        sharding_options,
    ),
    *(sharding_constraint_inside, other_device, default_device, eval_shape, make_jaxpr, lower_and_compile),
    *(trace_then_lower, lower_with_static, export, export_with_gradient, checking_leaks, debug_nans, disable_jit),
    *(named_scope, matmul_precision, strict_promotion, x64_and_back, threads, clear_caches, printing),
    *(gradient_with_printing, pure_callback_inside, reference_inside),
)
