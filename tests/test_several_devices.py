"""Programs over eight devices: sharded as under `jax.jit`, with the same values and no collective that it has not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.interpreters import mlir
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import jaxpr2triton as j2t
from jaxpr2triton.front.devices import Cut, Splittable, splittable

COLLECTIVE = re.compile(r" (all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all)(?:-start)?\(")
SPLIT, WHOLE = PartitionSpec("b"), PartitionSpec()
pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices, fake ones at least")


def made(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean()


def lorenz(y: Any, p: Any) -> Any:
    def step(y: Any, _: Any) -> Any:
        k = jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])
        return y + 0.01 * k, y[0]

    return lax.scan(step, y, None, length=6)


def rnn(w: Any, u: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u)
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], 4)), xs)[1]


def halved(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] > 1e-2, lambda c: (c[0] * 0.5, c[1] + 1), (jnp.abs(x), 0))


def halved_alone(x: Any) -> Any:
    return lax.while_loop(lambda c: c > 1e-2, lambda c: c * 0.5, jnp.abs(x))


def mlp(p: Any, x: Any, labels: Any) -> Any:
    return cross_entropy(jnp.tanh(x @ p[0]) @ p[1], labels)


def sgd(loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(p: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, *batch)
        return value, jax.tree.map(lambda a, b: a - 0.1 * b, p, gradient)

    return step


def squares(function: Callable[..., Any], argnums: tuple[int, ...]) -> Callable[..., Any]:
    return jax.grad(lambda *args: sum((leaf**2).sum() for leaf in jax.tree.leaves(function(*args))), argnums)


def nested(x: Any, w: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c @ w), c), c.sum(1)

    return lax.scan(step, x, None, length=3)


def averaged_in_turns(x: Any) -> Any:
    return (x - x.mean(0)) / (x.std(0) + 1e-3)


def stepping_while_any(x: Any) -> Any:
    return lax.while_loop(lambda c: (c > 1e-2).any(), lambda c: c * 0.5, jnp.abs(x))


def smoothed(x: Any, kernel: Any) -> Any:
    """What XLA does stands between two kernels, and is split as they are."""
    layout = ("NWC", "WIO", "NWC")
    return jax.nn.relu(lax.conv_general_dilated(jnp.sin(x), kernel, (1,), "SAME", dimension_numbers=layout))


X, SCALE, LABELS = made(0, 16, 32), made(1, 32), np.arange(16) % 32
LAYER_NORM = (X, SPLIT), (SCALE, WHOLE), (SCALE, WHOLE)
ODE = (made(2, 16, 3), SPLIT), (np.array([10.0, 28.0, 8 / 3], np.float32), WHOLE)
RNN = (made(3, 4, 4), WHOLE), (made(4, 3, 4), WHOLE), (made(5, 5, 16, 3), PartitionSpec(None, "b"))
MLP = (made(6, 32, 8), WHOLE), (made(7, 8, 32), WHOLE), (X, SPLIT), (LABELS, SPLIT)
NESTED = (X, SPLIT), (0.1 * made(8, 32, 32), WHOLE)
EMBED = (made(9, 32, 8), WHOLE), (np.arange(80).reshape(16, 5) % 32, SPLIT)
ensemble = jax.vmap(lorenz, (0, None))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layer_norm": (layer_norm, LAYER_NORM),
    "layer_norm_grad": (squares(layer_norm, (0, 1, 2)), LAYER_NORM),
    "softmax": (jax.nn.softmax, ((X, SPLIT),)),
    "softmax_grad": (squares(jax.nn.softmax, (0,)), ((X, SPLIT),)),
    "cross_entropy": (cross_entropy, ((X, SPLIT), (LABELS, SPLIT))),
    "cross_entropy_grad": (jax.value_and_grad(cross_entropy), ((X, SPLIT), (LABELS, SPLIT))),
    "ode": (ensemble, ODE),
    "ode_grad": (squares(ensemble, (0, 1)), ODE),
    "rnn": (rnn, RNN),
    "rnn_grad": (squares(rnn, (0, 1, 2)), RNN),
    "while": (jax.vmap(halved), ((made(10, 16), SPLIT),)),
    "while_alone": (jax.vmap(halved_alone), ((made(10, 16), SPLIT),)),
    "nested": (nested, NESTED),
    "nested_grad": (squares(nested, (0, 1)), NESTED),
    "batch_norm": (averaged_in_turns, ((X, SPLIT),)),
    "greatest": (lambda x: x - x.max(0), ((X, SPLIT),)),
    "rows": (lambda x: x + jnp.arange(16)[:, None], ((X, SPLIT),)),
    "random": (lambda x: x * jax.random.normal(jax.random.key(0), x.shape), ((X, SPLIT),)),
    "drawn_flat": (lambda x: x + jax.random.uniform(jax.random.key(5), (x.size,)).reshape(x.shape), ((X, SPLIT),)),
    "flattened": (lambda x: jnp.exp(x.reshape(-1)), ((X, SPLIT),)),
    "tokens_grad": (squares(lambda x: jax.nn.softmax(x.reshape(64, 8)), (0,)), ((X, SPLIT),)),
    "any": (lambda x: jnp.where((x > 2).any(), x, (x > -1).all(0)), ((X, SPLIT),)),
    "convolution": (smoothed, ((made(11, 16, 12, 3), SPLIT), (made(12, 3, 3, 4), WHOLE))),
    "convolution_grad": (squares(smoothed, (0, 1)), ((made(11, 16, 12, 3), SPLIT), (made(12, 3, 3, 4), WHOLE))),
    "least_kept": (jax.vmap(lambda x, i: x.at[i].min(0.0)), ((X, SPLIT), (LABELS, SPLIT))),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x, axis=1), ((X, SPLIT),)),
    "sorted_along": (lambda x: jnp.sort(x * 2, 0) + 1, ((X, SPLIT),)),
    "sums_along": (lambda x: jnp.cumsum(x, 0), ((X, SPLIT),)),
    "while_any": (stepping_while_any, ((X, SPLIT),)),
    "embedding_grad": (squares(lambda table, i: table[i].sum(1), (0,)), EMBED),
    "train_mlp": (lambda a, b, *batch: sgd(mlp)((a, b), *batch), MLP),
    "train_rnn": (lambda w, u, xs: sgd(lambda p, xs: (rnn(*p, xs) ** 2).mean())((w, u), xs), RNN),
}


def along_a_name(x: Any) -> Any:
    """Each lane of a `vmap` knows its place."""
    return jax.vmap(lambda row: row * lax.axis_index("lane") + lax.psum(row, "lane"), axis_name="lane")(x)


def walk(x: Any) -> Any:
    """Counted and drawn in each step of a loop."""

    def step(x: Any, key: Any) -> Any:
        return x + jax.random.normal(key, x.shape) * jnp.arange(16)[:, None], x.sum(1)

    return lax.scan(step, x, jax.random.split(jax.random.key(2), 3))


def drawn(x: Any) -> Any:
    key = jax.random.key(5)
    return x * jax.random.randint(key, x.shape, 0, 9), jax.random.bernoulli(key, 0.3, x.shape[:1])


# What is counted along the axis that is split: each device has to count on from where the one before it ends.
COUNTS: dict[str, Callable[..., Any]] = {
    "iota": lambda x: x + jnp.arange(16)[:, None],
    "small iota": lambda x: x * lax.broadcasted_iota(jnp.uint8, x.shape, 0),
    "linspace": lambda x: x * jnp.linspace(0, 1, 16)[:, None],
    "eye": lambda x: x + jnp.eye(16, 32),
    "triangle": jnp.tril,
    "flat": lambda x: x.reshape(-1) * jnp.arange(x.size),
    "joined and cut": lambda x: (x.reshape(-1) + jnp.arange(x.size)).reshape(8, 64) * jnp.arange(8)[:, None],
    "one hot": lambda x: jax.nn.one_hot(jnp.arange(16), 32) * x,
    "where": lambda x: jnp.where(jnp.arange(16)[:, None] % 3 == 1, x, 0).sum(1),
    "uniform": lambda x: x + jax.random.uniform(jax.random.key(1), x.shape),
    "dropout": lambda x: jnp.where(jax.random.bernoulli(jax.random.key(1), 0.5, x.shape), x, 0),
    "categorical": lambda x: jax.random.categorical(jax.random.key(1), x),
    "keys": lambda x: x[:, 0] + jax.vmap(jax.random.uniform)(jax.random.split(jax.random.key(3), 16)),
    "folded keys": jax.vmap(lambda row: row + jax.random.normal(jax.random.fold_in(jax.random.key(4), 3), row.shape)),
    "drawn": drawn,
    "axis_index": along_a_name,
    "a loop": walk,
    "counting in a loop": lambda x: lax.fori_loop(0, 3, lambda i, c: c * jnp.arange(16)[:, None] + i, x),
}


def on_mesh(operands: tuple[Any, ...], kind: AxisType) -> list[Any]:
    mesh = jax.make_mesh((8,), ("b",), axis_types=(kind,))
    return [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in operands]


def compared(function: Callable[..., Any], args: list[Any], **how: Any) -> tuple[list[str], list[str], Any, Any]:
    """The collectives of ours and of jit's, and the results of both; the values agree."""
    theirs = jax.jit(function).lower(*args).compile()
    ours = jax.jit(j2t.fuse(function, backend="interpret", **how)).lower(*args).compile()
    want, got = theirs(*args), ours(*args)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=3e-5, atol=3e-5)
    return COLLECTIVE.findall(ours.as_text()), COLLECTIVE.findall(theirs.as_text()), got, want


def refused_by_jit(function: Callable[..., Any], args: list[Any]) -> bool:
    """JAX asks for a sharding of what two sharded dimensions make, or traces a batched loop without its mesh."""
    try:
        jax.jit(function).lower(*args)
    except Exception as refusal:
        if type(refusal).__name__ != "ShardingTypeError" and "is not found in mesh" not in str(refusal):
            raise
        return True
    return False


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("case", CASES)
def test_no_collective_that_jit_has_not(case: str, kind: AxisType) -> None:
    function, operands = CASES[case]
    if kind is AxisType.Explicit and refused_by_jit(function, on_mesh(operands, kind)):
        pytest.skip("jax.jit refuses it")
    ours, theirs, got, want = compared(function, on_mesh(operands, kind))
    assert len(ours) <= len(theirs)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)


@pytest.mark.parametrize("case", ["convolution", "convolution_grad", "train_mlp"])
def test_no_collective_where_products_are_kernels(case: str) -> None:
    function, operands = CASES[case]
    ours, theirs, _, _ = compared(function, on_mesh(operands, AxisType.Auto), contractions="triton")
    assert len(ours) <= len(theirs)


@pytest.mark.parametrize("spec", [SPLIT, WHOLE], ids=["split", "whole"])
def test_a_constraint_is_kept_where_it_stands(spec: PartitionSpec) -> None:
    mesh = jax.make_mesh((8,), ("b",), axis_types=(AxisType.Auto,))

    def constrained(x: Any) -> Any:
        return lax.with_sharding_constraint(jnp.tanh(x), NamedSharding(mesh, spec)) * 2

    ours, theirs, got, want = compared(constrained, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert ours == theirs and got.sharding.is_equivalent_to(want.sharding, got.ndim)


def test_keys_of_an_ensemble_are_split() -> None:
    keys = jax.random.split(jax.random.key(0), 16)
    drawn = jax.vmap(lambda key, x: x * jax.random.normal(key, x.shape))
    ours, _, got, want = compared(drawn, on_mesh(((keys, SPLIT), (X, SPLIT)), AxisType.Auto))
    assert ours == [] and got.sharding.is_equivalent_to(want.sharding, got.ndim)


@pytest.mark.parametrize("spec", [SPLIT, PartitionSpec(None, "b"), WHOLE], ids=str)
@pytest.mark.parametrize("case", COUNTS)
def test_what_counts_along_a_split_axis_goes_on(case: str, spec: PartitionSpec) -> None:
    ours, theirs, got, want = compared(COUNTS[case], on_mesh(((X, spec),), AxisType.Auto))
    assert len(ours) <= len(theirs)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)


def test_what_counts_on_a_mesh_of_two_axes() -> None:
    mesh = jax.make_mesh((4, 2), ("b", "c"), axis_types=(AxisType.Auto,) * 2)
    for spec in (PartitionSpec("b", "c"), PartitionSpec("c", "b"), PartitionSpec(("c", "b"))):
        for case in ("uniform", "triangle", "a loop"):
            ours, theirs, _, _ = compared(COUNTS[case], [jax.device_put(X, NamedSharding(mesh, spec))])
            assert len(ours) <= len(theirs), (spec, case)


def test_a_loop_that_all_lanes_decide_on_has_no_collective_inside() -> None:
    ours, theirs, _, _ = compared(stepping_while_any, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert ours == ["all-gather"] and theirs == ["all-reduce"]  # once, before the loop; and in every step


def test_two_axes_of_a_mesh() -> None:
    mesh = jax.make_mesh((4, 2), ("b", "c"), axis_types=(AxisType.Auto,) * 2)
    specs = (X, PartitionSpec("b", "c")), (SCALE, WHOLE)
    args = [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in specs]
    ours, theirs, _, _ = compared(lambda x, w: (jnp.sin(x) * w, (x * w).sum(0), (x * w).sum()), args)
    assert len(ours) <= len(theirs)


def test_each_device_runs_kernels_on_its_part() -> None:
    (x,) = on_mesh(((X, SPLIT),), AxisType.Auto)
    fused = jax.jit(j2t.fuse(jax.nn.softmax, backend="interpret", strict=True))
    text = fused.lower(x).compile().as_text()
    assert "f32[2,32]" in text and "f32[16,32]" not in text


@pytest.mark.parametrize("spec", [("x", "y"), ("x",), (("x", "y"),), (("y", "x"),)], ids=str)
def test_meshes_of_two_shapes_in_one_jit(spec: tuple[Any, ...]) -> None:
    """Devices have numbers in common, and nothing else."""
    line = jax.make_mesh((8,), ("b",), axis_types=(AxisType.Auto,))
    plane = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    args = [jax.device_put(X, NamedSharding(mesh, P)) for mesh, P in ((line, SPLIT), (plane, PartitionSpec(*spec)))]
    ours, theirs, _, _ = compared(lambda x, y: ((jax.nn.softmax(x) + y).sum(), jnp.sin(y).sum()), args)
    assert len(ours) <= len(theirs)


def test_the_same_function_twice_for_meshes_of_two_shapes() -> None:
    line = jax.make_mesh((8,), ("b",), axis_types=(AxisType.Auto,))
    plane = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    args = [jax.device_put(X, NamedSharding(mesh, P)) for mesh, P in ((line, SPLIT), (plane, PartitionSpec("y")))]
    softmax = j2t.fuse(jax.nn.softmax, backend="interpret", strict=True)
    for value in jax.jit(lambda *args: [softmax(x).sum(1) for x in args])(*args):
        np.testing.assert_allclose(value, np.ones(16), rtol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_lowered_before_there_are_devices(kind: AxisType) -> None:
    mesh = AbstractMesh((8,), ("b",), axis_types=(kind,))
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, SPLIT))
    traced = jax.jit(j2t.fuse(jax.nn.softmax, backend="interpret", strict=True)).trace(shape)
    compiled = traced.lower(lowering_platforms=("cpu",)).compile(device_assignment=tuple(jax.devices()))
    (x,) = on_mesh(((X, SPLIT),), kind)
    np.testing.assert_allclose(compiled(x), jax.nn.softmax(X), rtol=1e-5)
    assert "f32[2,32]" in compiled.as_text() and "f32[16,32]" not in compiled.as_text()


def test_the_older_partitioner_splits_too() -> None:
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        ours, theirs, _, _ = compared(sgd(cross_entropy), on_mesh(((X, SPLIT), (LABELS, SPLIT)), AxisType.Auto))
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)
    assert len(ours) <= len(theirs)


def test_a_constraint_in_a_loop_changes_nothing() -> None:
    mesh = jax.make_mesh((8,), ("b",), axis_types=(AxisType.Auto,))

    def constrained(x: Any) -> Any:
        sharding = NamedSharding(mesh, SPLIT)
        return lax.fori_loop(0, 3, lambda _, c: lax.with_sharding_constraint(jnp.sin(c), sharding) * 2, x)

    ours, theirs, _, _ = compared(constrained, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert ours == theirs == []


def test_what_is_printed_stands_between_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    def printing(x: Any) -> Any:
        y = jnp.sin(x)
        jax.debug.print("sum {:.3f}", y.sum())
        return y * 2

    ours, theirs, got, want = compared(printing, on_mesh(((X, SPLIT),), AxisType.Auto))
    jax.effects_barrier()
    assert ours == theirs and got.sharding.is_equivalent_to(want.sharding, got.ndim)
    assert len(set(capsys.readouterr().out.splitlines())) == 1


def test_arrays_that_a_program_holds_are_operands_of_each_part() -> None:
    table, two = jnp.asarray(made(11, *X.shape)), jnp.float32(2)
    held = jax.custom_jvp(lambda x: jnp.tanh(x * table) + two)
    held.defjvps(lambda slope, _, x: slope * table)
    ours, theirs, got, want = compared(held, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert ours == theirs == [] and got.sharding.is_equivalent_to(want.sharding, got.ndim)


def test_a_branch_that_calls_python_is_cut_out() -> None:
    def lowest(a: Any) -> Any:
        return np.minimum(a, 0)

    def called(x: Any) -> Any:
        y = jnp.sin(x) * 2
        kind = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return jnp.exp(lax.cond((y > 1.5).any(), lambda: jax.pure_callback(lowest, kind, y), lambda: y))

    compared(called, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert isinstance(splittable(jax.make_jaxpr(called)(X)), Cut)


def test_a_derivative_is_not_cut_where_it_reshards_nothing() -> None:
    """JAX does so with what a mesh that is not explicit has everywhere."""
    (x,) = on_mesh(((X, SPLIT),), AxisType.Auto)
    slope = jax.make_jaxpr(jax.grad(lambda x: jax.nn.silu(x).sum()))(x)
    assert "reshard" in str(slope)
    assert isinstance(splittable(slope), Splittable)


def test_what_a_whole_loop_before_a_check_makes_lies_as_its_operand() -> None:
    """XLA's own check stands behind the loop, which every device runs as a whole."""

    def checked(x: Any) -> Any:
        y = stepping_while_any(x)
        kind = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return lax.cond((y > 1.0).any(), lambda: jax.pure_callback(lambda y: y * np.nan, kind, y), lambda: y)

    ours, theirs, got, want = compared(checked, on_mesh(((X, SPLIT),), AxisType.Auto))
    assert isinstance(splittable(jax.make_jaxpr(checked)(X)), Cut)
    assert got.sharding.is_equivalent_to(want.sharding, got.ndim)


def test_a_mistake_of_ours_leaves_all_of_a_program_to_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*args: Any, **options: Any) -> Any:
        raise KeyError("row")

    monkeypatch.delenv("J2T_RAISE", raising=False)
    monkeypatch.setattr("jaxpr2triton.front.lowering.splittable", mistaken)
    (x,) = on_mesh(((X, SPLIT),), AxisType.Auto)

    def alone(x: Any) -> Any:
        return jnp.sin(x) * 1.75

    with pytest.warns(j2t.BugWarning) as caught:
        found = jax.jit(j2t.fuse(alone, backend="interpret"))(x)
    np.testing.assert_allclose(found, alone(X), rtol=1e-6)
    assert "\n  The results are right: every device runs the whole program.\n" in str(caught[0].message)


def test_a_primitive_that_nobody_told_us_about_is_split_as_its_implementation() -> None:
    twice_p = jex.Primitive("twice")
    twice_p.def_impl(lambda x: x * 2)
    twice_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    closed = jax.make_jaxpr(lambda x: jnp.sin(twice_p.bind(x)).sum(1))(X)
    assert isinstance(splittable(closed), Splittable)
    ours, theirs, got, want = compared(lambda x: jnp.sin(twice_p.bind(x)).sum(1), on_mesh(((X, SPLIT),), AxisType.Auto))
    assert ours == theirs == [] and got.sharding.is_equivalent_to(want.sharding, got.ndim)
