"""Programs over eight devices: sharded as under `jax.jit`, with the same values and no collective that it has not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpr2triton as j2t

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
    "nested": (nested, NESTED),
    "nested_grad": (squares(nested, (0, 1)), NESTED),
    "batch_norm": (averaged_in_turns, ((X, SPLIT),)),
    "greatest": (lambda x: x - x.max(0), ((X, SPLIT),)),
    "rows": (lambda x: x + jnp.arange(16)[:, None], ((X, SPLIT),)),
    "random": (lambda x: x * jax.random.normal(jax.random.key(0), x.shape), ((X, SPLIT),)),
    "embedding_grad": (squares(lambda table, i: table[i].sum(1), (0,)), EMBED),
    "train_mlp": (lambda a, b, *batch: sgd(mlp)((a, b), *batch), MLP),
    "train_rnn": (lambda w, u, xs: sgd(lambda p, xs: (rnn(*p, xs) ** 2).mean())((w, u), xs), RNN),
}


def on_mesh(operands: tuple[Any, ...], kind: AxisType) -> list[Any]:
    mesh = jax.make_mesh((8,), ("b",), axis_types=(kind,))
    return [jax.device_put(value, NamedSharding(mesh, spec)) for value, spec in operands]


def compared(function: Callable[..., Any], args: list[Any]) -> tuple[list[str], list[str], Any, Any]:
    """The collectives of ours and of jit's, and the results of both; the values agree."""
    theirs = jax.jit(function).lower(*args).compile()
    ours = jax.jit(j2t.fuse(function, backend="interpret")).lower(*args).compile()
    want, got = theirs(*args), ours(*args)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=3e-5, atol=3e-5)
    return COLLECTIVE.findall(ours.as_text()), COLLECTIVE.findall(theirs.as_text()), got, want


def refused_by_jit(function: Callable[..., Any], args: list[Any]) -> bool:
    try:
        jax.jit(function).lower(*args)
    except Exception as refusal:
        if type(refusal).__name__ != "ShardingTypeError":
            raise
        return True
    return False


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("case", CASES)
def test_no_collective_that_jit_has_not(case: str, kind: AxisType) -> None:
    if kind is AxisType.Explicit and case == "while":
        pytest.skip("a batched loop of an explicit mesh is traced without it")
    function, operands = CASES[case]
    if kind is AxisType.Explicit and refused_by_jit(function, on_mesh(operands, kind)):
        pytest.skip("JAX asks for a sharding of what two sharded dimensions make")
    ours, theirs, got, want = compared(function, on_mesh(operands, kind))
    assert len(ours) <= len(theirs)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert one.sharding.is_equivalent_to(other.sharding, one.ndim)


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
