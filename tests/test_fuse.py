"""The decorator itself: its options, its errors, what it lowers to, and what it costs."""

from __future__ import annotations

import gc
import inspect
import re
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, get_args, get_origin, get_overloads, get_type_hints

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxpr2triton as j2t
from jaxpr2triton.front import planning
from jaxpr2triton.front.derived_programs import split_program
from jaxpr2triton.front.fused import fused_p
from jaxpr2triton.front.options import Settings
from jaxpr2triton.hardware import TARGETS
from tests.programs import windows
from tests.transforms.functions import V, X, Y, energy, layer_norm, mix, wave

CUDA_CALL = re.compile(r"custom_call @(\w+)")


def lowered(function: Any, *args: Any, platform: str = "cpu") -> str:
    return jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def programs(function: Any, *args: Any) -> list[str]:
    """The names of the fused programs in a traced function."""

    def walk(jaxpr: Any) -> list[str]:
        found = []
        for eqn in jaxpr.eqns:
            if eqn.primitive is fused_p:
                found.append(eqn.params["name"])
            else:
                found += [name for body in jex.jaxprs_in_params(eqn.params) for name in walk(body)]
        return found

    return walk(jax.make_jaxpr(function)(*args).jaxpr)


def loss(x: Any, scale: Any, bias: Any) -> Any:
    return (layer_norm(x, scale, bias) ** 2).sum()


def windows_twice(x: Any) -> Any:
    return windows(x) * 2


# ---------------------------------------------------------------------------------------------- options and errors
def test_unknown_backend() -> None:
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(wave, backend="gpu")
    assert str(caught.value) == "backend='gpu' is not a backend\n  try  one of auto, triton, interpret, machine, xla"


def test_roles_are_of_the_kernels_of_the_function() -> None:
    def fails(roles: Any) -> str:
        with pytest.raises(j2t.UserError) as caught:
            j2t.fuse(wave, backend="interpret", roles=roles)(X)
        return str(caught.value)

    assert fails({"i": "warp"}) == "roles: 'warp' is not a role\n  try  one of grid, lane, loop, unroll"
    assert fails({"i.j.k": "lane"}).splitlines() == [
        "roles: 'i.j.k' is not the name of an axis",
        '  try  "AXIS" or "KERNEL.AXIS", as explain shows them',
    ]
    assert fails({"mix_0.i": "lane"}) == "roles: the kernels of wave are called wave…, so mix_0 is none of them"
    assert fails({"hidden": "lane"}) == 'roles: there is no axis "hidden": wave has i'
    assert fails({"wave_1.i": "lane"}) == 'roles: there is no axis "wave_1.i": wave has i'


def test_roles_are_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled with some roles is not taken for what was compiled with others, and is the same numbers."""
    made: dict[str, str] = {}
    original = planning.compile_jaxpr

    def noting(jaxpr: Any, name: str, roles: Any, policy: Any) -> Any:
        compiled = original(jaxpr, name, roles, policy)
        made[str(roles)] = str(compiled.stages["schedule"]).splitlines()[0]
        return compiled

    monkeypatch.setattr(planning, "compile_jaxpr", noting)
    for roles in (None, {"i": "lane"}, {"wave.i": "loop"}):
        np.testing.assert_allclose(j2t.fuse(wave, backend="interpret", roles=roles)(X), wave(X), rtol=1e-6)
    assert made == {
        "{}": "kernel wave   i: grid 12 by 16   warps 1",
        '{"i": lane}': "kernel wave   i: lane 12 of 16   warps 1",
        '{"wave.i": loop}': "kernel wave   i: loop 12 by 8   warps 1",
    }


def test_roles_go_to_gradients_and_batches_where_there_is_such_an_axis() -> None:
    f = j2t.fuse(wave, backend="interpret", roles={"i": "lane", "wave_bwd.nothing": "lane"})
    np.testing.assert_allclose(jax.vmap(f)(X), jax.vmap(wave)(X), rtol=1e-6)
    with pytest.raises(j2t.UserError) as caught:
        jax.grad(lambda x: f(x).sum())(X)
    assert str(caught.value).startswith('roles: there is no axis "wave_bwd.nothing": wave_bwd has ')


def test_not_a_function() -> None:
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(3)
    assert str(caught.value) == "fuse takes a function, not 3"


@pytest.mark.parametrize(
    ("roles", "what", "hint"),
    [
        ("col=lane", "roles='col=lane' is not a dict of axes and roles", "roles={'col': 'lane'}"),
        ("lane", "roles='lane' is not a dict of axes and roles", "roles={'col': 'lane'}"),
        (["i"], "roles=['i'] is not a dict of axes and roles", "roles={'col': 'lane'}"),
        ({"i": ["lane"]}, "roles: ['lane'] is not a role", "one of grid, lane, loop, unroll"),
        ({3: "lane"}, "roles: 3 is not the name of an axis", '"AXIS" or "KERNEL.AXIS", as explain shows them'),
    ],
)
def test_roles_are_a_dict(roles: Any, what: str, hint: str) -> None:
    for call in (lambda: j2t.fuse(wave, roles=roles), lambda: j2t.transpile(wave, X, roles=roles)):
        with pytest.raises(j2t.UserError) as caught:
            call()
        assert str(caught.value) == f"{what}\n  try  {hint}"


@pytest.mark.parametrize("backend", ["auto", "interpret"])
def test_roles_are_checked_on_every_machine(backend: str) -> None:
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(wave, backend=backend, roles={"zzz": "lane"})(X)
    assert str(caught.value) == 'roles: there is no axis "zzz": wave has i'
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(lambda x: x.sum(1), backend=backend, roles={"k": "grid"})(X)
    assert "cannot be grid: elements along it meet" in str(caught.value)
    np.testing.assert_allclose(j2t.fuse(wave, backend=backend, roles={"i": "lane"})(X), wave(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "close"), [("static_argnum", "static_argnums"), ("stric", "strict"), ("no_such_option", None)]
)
def test_a_misspelt_option_is_one_of_fuse(option: str, close: str | None) -> None:
    for options in ({option: 0}, {option: 0, "backend": "xla"}):
        with pytest.raises(TypeError) as caught:
            j2t.fuse(wave, **options)
        meant = f". Did you mean '{close}'?" if close else ""
        assert str(caught.value) == f"fuse() got an unexpected keyword argument '{option}'{meant}"
        with pytest.raises(TypeError):
            j2t.fuse(**options)


def test_fuse_is_typed_with_all_options_of_jit() -> None:
    """Editors see the overloads, so that they find what is misspelt."""
    ours = {"backend", "strict", "roles", "contractions", "checkpoint", "exact_order", "schedule", "schedules"}
    for overload in get_overloads(j2t.fuse):
        (function, *options) = inspect.signature(overload).parameters.values()
        assert function.kind is function.POSITIONAL_ONLY and all(each.kind is each.KEYWORD_ONLY for each in options)
        assert {each.name for each in options} == ours | (set(inspect.signature(jax.jit).parameters) - {"fun"})


def test_options_of_jit_do_what_they_do_there() -> None:
    f = j2t.fuse(mix, donate_argnums=1, keep_unused=True, inline=True, out_shardings=None, compiler_options={})
    np.testing.assert_allclose(f(X, Y + 0), mix(X, Y), rtol=1e-6)
    donated = Y + 0
    f(X, donated)
    assert donated.is_deleted()


def test_options_of_jit_are_checked_by_jit() -> None:
    with pytest.raises(ValueError, match="not hashable|Non-hashable"):
        j2t.fuse(lambda x, n: x, static_argnums=1)(X, [1])


def test_both_ways_to_decorate() -> None:
    assert type(j2t.fuse(wave)) is type(j2t.fuse(backend="xla")(wave)) is j2t.Fused


def test_backend_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "custom_call" not in lowered(j2t.fuse(wave), X)
    monkeypatch.setenv("J2T_BACKEND", "interpret")
    assert "callback" in lowered(j2t.fuse(wave), X)
    assert "custom_call" not in lowered(j2t.fuse(wave, backend="xla"), X)


def test_wrong_backend_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_BACKEND", "gpu")
    with pytest.raises(j2t.UserError) as caught:
        j2t.fuse(wave)(X)
    hint = "one of auto, triton, interpret, machine, xla"
    assert str(caught.value) == f"J2T_BACKEND='gpu' is not a backend\n  try  {hint}"


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on a GPU this backend works")
@pytest.mark.parametrize("transformed", [lambda f: f, lambda f: jax.grad(lambda x: f(x).sum()), jax.vmap])
def test_triton_without_gpu(transformed: Any) -> None:
    with pytest.raises(j2t.BackendError) as caught:
        transformed(j2t.fuse(wave, backend="triton"))(X)
    assert str(caught.value) == (
        'backend="triton" runs on CUDA and ROCm devices only, and this program is to run elsewhere\n'
        '  try  backend="auto" to let XLA run it there, or backend="interpret" to run the kernels in Triton\'s '
        "interpreter"
    )


# ---------------------------------------------------------------------------------------------- strict
def test_strict_names_the_equation() -> None:
    with pytest.raises(j2t.NotFusible) as caught:
        j2t.fuse(windows_twice, strict=True)(X)
    what, where, hint = str(caught.value).splitlines()
    assert re.fullmatch(r"cannot compile `\w+:f32\[3,4\] = reduce_window_sum\[.*\] \w+`: its windows have .*", what)
    assert re.fullmatch(r"  at   programs\.py:\d+ \(windows\)", where)
    assert hint == "  try  leave it to XLA (drop strict=True), or see `jaxpr2triton explain` for what it costs"


@pytest.mark.parametrize(
    "transformed",
    [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum()), lambda f: lambda x: jax.jvp(f, (x,), (x,))],
)
def test_strict_under_transformations(transformed: Any) -> None:
    with pytest.raises(j2t.NotFusible):
        transformed(j2t.fuse(windows_twice, strict=True))(X)


def test_strict_with_xla_refuses_nothing() -> None:
    np.testing.assert_array_equal(j2t.fuse(windows_twice, strict=True, backend="xla")(X), windows_twice(X))


@pytest.mark.parametrize("backend", ["auto", "interpret"])
def test_strict_accepts_what_is_covered(backend: str) -> None:
    f = j2t.fuse(layer_norm, strict=True, backend=backend)
    np.testing.assert_allclose(f(X, V, V), layer_norm(X, V, V), rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda *a: (f(*a) ** 2).sum())(X, V, V)
    np.testing.assert_allclose(gradient, jax.grad(loss)(X, V, V), rtol=1e-4, atol=1e-5)


def test_strict_and_side_effects() -> None:
    def noisy(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    with pytest.raises(j2t.NotFusible) as caught:
        j2t.fuse(noisy, strict=True)(X)
    what, where, hint = str(caught.value).splitlines()[:3]
    assert re.fullmatch(r"cannot compile `debug_print\[.*\] a`: `debug_print` has side effects", what)
    assert re.fullmatch(r"  at   test_fuse\.py:\d+ \(.*noisy\)", where)
    assert hint.startswith("  try  leave it to XLA (drop strict=True)")


def test_strict_and_references() -> None:
    def counting(x: Any) -> Any:
        total = jax.new_ref(x)
        total[...] += 1
        return total[...]

    with pytest.raises(j2t.NotFusible) as caught:
        j2t.fuse(counting, strict=True)(X)
    what, where, hint = str(caught.value).splitlines()
    assert re.fullmatch(r"cannot compile `\w+`: it has side effects, so the whole function stays with XLA", what)
    assert re.fullmatch(r"  at   test_fuse\.py:\d+ \(.*counting\)", where)
    assert hint == "  try  take the side effect out of the function, or leave it to XLA (drop strict=True)"


# ---------------------------------------------------------------------------------------------- what it lowers to
def test_elsewhere_it_is_plain_xla() -> None:
    text = lowered(jax.value_and_grad(j2t.fuse(loss)), X, V, V)
    assert "custom_call" not in text


@pytest.mark.parametrize("backend", ["auto", "triton"])
def test_for_cuda_without_a_gpu(backend: str) -> None:
    text = lowered(jax.value_and_grad(j2t.fuse(loss, backend=backend)), X, V, V, platform="cuda")
    calls = Counter(CUDA_CALL.findall(text))
    assert set(calls) == {"triton_kernel_call_ffi"} and 2 <= sum(calls.values()) <= 4


def test_for_both_platforms_at_once() -> None:
    text = jax.jit(j2t.fuse(wave)).trace(X).lower(lowering_platforms=("cpu", "cuda")).as_text()
    assert "triton_kernel_call_ffi" in text and "stablehlo.sine" in text


def test_value_and_grad_is_two_programs() -> None:
    assert programs(jax.value_and_grad(j2t.fuse(loss)), X, V, V) == ["loss_fwd", "loss_bwd"]


def test_a_batch_of_gradients_is_two_programs() -> None:
    gradient = jax.vmap(jax.grad(j2t.fuse(loss)), in_axes=(0, None, None))
    assert programs(gradient, X[:, None], V, V) == ["loss_fwd_vmap", "loss_bwd_vmap"]


def test_forward_mode_is_two_programs() -> None:
    assert programs(lambda x: jax.jvp(j2t.fuse(energy), (x,), (x,)), X) == ["energy_fwd", "energy_lin"]


@pytest.mark.parametrize("term", [jnp.square, lambda x: jnp.arctan2(x, 2.0)], ids=["abs2", "atan2"])
def test_the_gradient_of_a_sum_computes_no_sum(term: Any) -> None:
    x = jnp.ones((28, 28, 1, 16))
    gradient = jax.grad(j2t.fuse(lambda x: term(x).sum()))
    assert "stablehlo.reduce" not in lowered(gradient, x)
    assert CUDA_CALL.findall(lowered(gradient, x, platform="cuda")) == ["triton_kernel_call_ffi"]


def test_unread_outputs_are_not_computed() -> None:
    both = j2t.fuse(lambda x, y: (jnp.sin(x), jnp.cumsum(y)))
    assert "sine" not in lowered(lambda x, y: both(x, y)[1], X, Y)


def test_an_unbatched_output_is_computed_once() -> None:
    both = j2t.fuse(lambda x, y: (x * 2, jnp.sin(y)))
    jaxpr = jax.make_jaxpr(jax.vmap(both, in_axes=(0, None), out_axes=(0, None)))(X, V)
    assert [aval.shape for aval in jaxpr.out_avals] == [(3, 4), (4,)]


def test_a_fused_function_inside_is_part_of_the_outer_one() -> None:
    inner = j2t.fuse(wave)
    outer = j2t.transpile(lambda x: inner(inner(x)) + jax.lax.map(inner, x), X)
    assert "fused" not in [leftover.primitive for leftover in outer.leftovers]
    assert not j2t.transpile(lambda x: inner(inner(x)), X).leftovers


def test_sharding_is_kept() -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("data", None))
    out = j2t.fuse(wave)(jax.device_put(jnp.ones((8, 4)), sharding))
    assert out.sharding.is_equivalent_to(sharding, 2)


# ---------------------------------------------------------------------------------------------- what it costs
def test_a_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    original = planning.compile_jaxpr

    def compile_and_count(jaxpr: Any, name: str, roles: Any, policy: Any) -> Any:
        counted.append(name)
        time.sleep(0.05)  # long enough for the other threads to come by
        return original(jaxpr, name, roles, policy)

    monkeypatch.setattr(planning, "compile_jaxpr", compile_and_count)
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * 3)(X)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: planning.compiled_program(jaxpr, "once", Settings()), range(8)))
    assert counted == ["once"] and len(set(map(id, found))) == 1

    f = j2t.fuse(mix, backend="interpret")
    gradient = jax.jit(jax.grad(lambda x, y: f(x, y).sum()))
    for _ in range(3):
        gradient(X, Y)
        f(X, Y)
    assert Counter(counted) == Counter({"once": 1, "mix": 1, "mix_bwd": 1})


def test_derived_programs_go_with_the_program() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * x)(X)
    split_program(jaxpr, (True,))
    gone = weakref.ref(jaxpr)
    del jaxpr
    gc.collect()
    assert gone() is None


def test_a_later_call_costs_what_jit_costs() -> None:
    def microseconds(function: Any) -> float:
        function(X).block_until_ready()
        rounds = []
        for _ in range(30):
            start = time.perf_counter()
            for _ in range(100):
                function(X)
            rounds.append((time.perf_counter() - start) * 1e4)
        return min(rounds)

    assert microseconds(j2t.fuse(wave)) < microseconds(jax.jit(wave)) + 20


@pytest.mark.gpu
def test_on_a_device() -> None:
    f = j2t.fuse(layer_norm, backend="triton", strict=True)
    np.testing.assert_allclose(f(X, V, V), layer_norm(X, V, V), rtol=1e-5, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2)))(X, V, V)
    for found, expected in zip(gradient, jax.grad(loss, argnums=(0, 1, 2))(X, V, V)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_gradients_know_which_devices_hold_them() -> None:
    """Inside of a `shard_map` unread outputs are dropped where its mesh is out of sight."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    both = j2t.fuse(lambda x, w: (jnp.sin(x @ w), jnp.cumsum(x)))
    spec = PartitionSpec("data")
    mapped = jax.shard_map(lambda x, w: both(x, w)[0], mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec)
    x, w = jnp.ones((8, 4)), jnp.ones((4, 2))
    found = jax.jit(jax.grad(lambda x, w: mapped(x, w).sum(), argnums=(0, 1)))(x, w)
    for one, other in zip(found, jax.grad(lambda x, w: jnp.sin(x @ w).sum(), argnums=(0, 1))(x, w)):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_target_in_the_environment_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("J2T_TARGET", "h100")
    for call in (lambda: j2t.transpile(wave, X), lambda: j2t.fuse(wave, backend="interpret", static_argnums=())(X)):
        with pytest.raises(j2t.UserError) as caught:
            call()
        assert str(caught.value) == f"J2T_TARGET: unknown target 'h100'\n  try  one of {', '.join(TARGETS)}"


def test_choices_are_literal_types() -> None:
    """So that type checkers refuse what `fuse` would."""
    for function, options in (
        (j2t.fuse, ("backend", "contractions", "schedule")),
        (j2t.transpile, ("contractions", "schedule")),
    ):
        for overload in get_overloads(function):
            hints = get_type_hints(overload)
            assert all(get_origin(hints[option]) is Literal for option in options)
            assert "sqrt" in get_args(get_args(hints["checkpoint"])[0])
