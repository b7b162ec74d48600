"""Reductions in two steps, outputs that share the rows of a sum, and which roots share a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t
from jaxpr2triton.ir.region import boundary_p
from jaxpr2triton.ir.tracing import run, trace
from jaxpr2triton.normalize.passes import normalize
from jaxpr2triton.plan.partition import split
from jaxpr2triton.plan.partition.chained import chain_results
from jaxpr2triton.plan.partition.criteria import loads_of
from jaxpr2triton.plan.partition.cut import find_cuts
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.group import group_roots
from jaxpr2triton.plan.partition.levels import Levels
from jaxpr2triton.plan.partition.partition import partition
from jaxpr2triton.policy import DEFAULT_POLICY
from tests import programs
from tests.compiling import compiled, differences
from tests.policies import moved
from tests.programs import windows

Fn = Callable[..., Any]
F32 = np.float32


def floats(*shape: int, dtype: Any = F32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def normalized(fn: Fn, *avals: Any) -> Any:
    jaxpr, constants = trace(fn, *avals)
    assert not constants
    return normalize(jaxpr)


def chunks_of(fn: Fn, *avals: Any) -> dict[str, int]:
    cuts = find_cuts(normalized(fn, *avals).jaxpr)
    return {eqn.primitive.name: count for eqn, count in split.to_split(cuts).items()}


TALL = floats(100_000, 64)


@pytest.mark.parametrize(
    ("fn", "aval", "split_too"),
    [
        (lambda x: x.sum(0), TALL, True),
        (lambda x: x.max(0), TALL, True),
        (lambda x: x.sum(), TALL, True),
        (lambda x: (x > 0).all(), TALL, True),
        (lambda x: (x > 0).any(), TALL, False),  # a flag
        (lambda x: x.astype(jnp.bfloat16).sum(0), TALL, True),
        (lambda x: x.sum(1), TALL, False),  # programs enough
        (lambda x: x.sum(0), floats(64, 100_000), False),
        (lambda x: x.sum(), floats(100, 64), False),  # little work
        (lambda x: lax.argmax(x, 0, np.int32), TALL, True),
        (lambda x: x - x.mean(), floats(40, 50), False),
    ],
)
def test_which_reductions_are_split(fn: Fn, aval: Any, split_too: bool) -> None:
    made = compiled(fn, aval)
    assert len(made.kernels) == 1 + split_too
    assert math.prod(made.kernels[0].grid) >= 64 or not split_too


def test_the_chunks_are_spread_over_the_grid() -> None:
    found = chunks_of(lambda x: x.sum(0), TALL)
    assert 1 <= found["reduce_sum"].chunks / DEFAULT_POLICY.target.processors <= 4
    first, second = compiled(lambda x: x.sum(0), TALL, name="column_sum").kernels
    assert (first.name, second.name) == ("column_sum_0", "column_sum_1")
    assert first.bytes_read == 4 * 100_000 * 64
    assert second.bytes_read == first.bytes_written < first.bytes_read // 100


LITTLE = moved(cuts={"small": 0}, splits={"elements": 4})  # everything is long enough to be split


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: x.sum(0), (37, 5)),
        (lambda x: x.sum((0, 2)), (7, 5, 11)),
        (lambda x: x.sum((1, 2)), (7, 5, 11)),
        (lambda x: x.max(), (53,)),
        (lambda x: (x.sum(), x.max(), x.min((0, 1))), (7, 5, 11)),
        (lambda x: jnp.exp(x).sum() / jnp.exp(x).max(), (61,)),
        (lambda x: jnp.prod(jnp.cos(x), 0), (64, 3)),
        (lambda x: ((x > 2).any(0), (x < 2).all(0)), (45, 2)),
        (lambda x: x.astype(jnp.float16).sum(0), (45, 2)),
    ],
)
def test_two_steps_compute_the_same(fn: Fn, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng().standard_normal(shape).astype(F32)
    jaxpr = normalized(lambda x: jax.tree.leaves(fn(x)), x)
    cuts = find_cuts(jaxpr.jaxpr, policy=LITTLE)
    chunks = split.to_split(cuts)
    assert chunks
    two_steps = split.split_reductions(cuts, jaxpr, chunks, {})
    assert any(eqn.primitive is boundary_p for eqn in two_steps.jaxpr.eqns)
    expected = jax.tree.leaves(fn(x))
    digits = 3e-2 if expected[0].dtype == np.float16 else 1e-4  # XLA adds 16-bit numbers up as such
    assert differences(run(two_steps, x), expected, digits) == []
    assert differences(run(partition(jaxpr, "parts", policy=LITTLE), x), expected, digits) == []


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (lambda x: x.sum(0), (100_000, 64)),
        (jax.nn.softmax, (10_000_000,)),
        (jax.nn.logsumexp, (10_000_000,)),
        (lambda x: x.var(), (10_000_000,)),
        (lambda x: x.std(0), (100_000, 64)),
        (lambda x: jax.nn.logsumexp(x, axis=0), (100_000, 64)),
        (programs.batch_norm_statistics, (65536, 256)),
        (lambda x: jax.nn.softmax(jax.nn.softmax(x, 1), 0), (4096, 768)),
        (lambda x: jax.nn.softmax(x, 1).sum(0), (4096, 768)),
        (lambda x: x / jnp.sqrt((x * x).sum()), (10_000_000,)),
        (lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))), (32, 64, 56, 56)),
    ],
)
def test_few_programs_never_read_much(fn: Fn, shape: tuple[int, ...]) -> None:
    for kernel in compiled(lambda x: jax.tree.leaves(fn(x)), floats(*shape)).kernels:
        assert math.prod(kernel.grid) >= 64 or kernel.bytes_read < 1 << 20, kernel.source


def group_norm(x: Any) -> Any:
    groups = x.reshape(x.shape[0], 8, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (group_norm, [(32, 64, 56, 56)]),
        (lambda x, scale: group_norm(x) * scale[None, :, None, None], [(32, 64, 56, 56), (64,)]),
        (lambda x, y: jnp.repeat(x.sum(1), 64) * y, [(1024, 4096), (65536,)]),
        (lambda x, y: jnp.tile(x.sum(1), 64) * y, [(1024, 4096), (65536,)]),
    ],
)
def test_reductions_are_not_computed_again_for_every_reader(fn: Fn, shapes: list[tuple[int, ...]]) -> None:
    for kernel in compiled(fn, *(floats(*shape) for shape in shapes)).kernels:
        steps = math.prod(axis.size for axis in kernel.axes)
        assert steps < 1 << 26, kernel.source


# an output that is written by the programs that also sum over its rows

ROWS = (floats(8192, 512), floats(512), floats(512))


def test_layer_norm_backward_reads_each_row_once() -> None:
    backward = j2t.transpile(programs.layer_norm, *ROWS, grad=(0, 1, 2)).backward
    large = 4 * 8192 * 512
    rows, *rest = backward.kernels
    assert len(rest) == 1, "the partial sums are added up"
    assert rows.source.count("tl.load(x_ptr") == 1
    assert 3 * large < rows.bytes_read + rows.bytes_written < 3.1 * large, "x and the cotangent are read, dx is written"
    assert sum(k.bytes_read + k.bytes_written for k in rest) < large // 10


@pytest.mark.parametrize("columns", [256, 1024, 4096, 8192])
def test_norms_backward_move_little(columns: int) -> None:
    avals = (floats(8192, columns), floats(columns), floats(columns))
    kernels = j2t.transpile(programs.layer_norm, *avals, grad=(0, 1, 2)).backward.kernels
    assert sum(k.bytes_read + k.bytes_written for k in kernels) < 1.05 * 3 * 4 * 8192 * columns


@pytest.mark.parametrize("rows", [8192, 8191, 300])
def test_layer_norm_backward_in_few_kernels(rows: int) -> None:
    avals = (floats(rows, 64), floats(64), floats(64))
    assert len(j2t.transpile(programs.layer_norm, *avals, grad=(0, 1, 2)).backward.kernels) <= 3


# which roots share a kernel


def groups(fn: Fn, *avals: Any) -> list[list[int]]:
    """The numbers of the outputs of each kernel."""
    jaxpr = normalized(lambda *args: jax.tree.leaves(fn(*args)), *avals).jaxpr
    cuts = find_cuts(jaxpr)
    outputs = list(jaxpr.outvars)
    return [[outputs.index(root) for root in g.roots if root in outputs] for g in group_roots(cuts, Levels(cuts).of)]


BIG = floats(4096, 4096)


@pytest.mark.parametrize(
    ("fn", "avals", "expected"),
    [
        (lambda x: (x * 2, x + 1), [BIG], [[0, 1]]),
        (lambda x: (x * 2, x.sum(1), x.max(1)), [BIG], [[0, 1, 2]]),
        (lambda x: (x * 2, x.T + 1), [BIG], [[0], [1]]),
        (lambda x, y: (x * 2, y + 1), [BIG, BIG], [[0], [1]]),  # nothing is shared
        (lambda x, y: (x * 2, y + 1), [floats(40), floats(40)], [[0, 1]]),  # but a launch
        (lambda x, y: (x * 2, y + 1), [floats(40), floats(41)], [[0], [1]]),
        (lambda x: tuple(x * n for n in range(2, 42)), [floats(40)], [list(range(32)), list(range(32, 40))]),
        (lambda *xs: tuple(x * 2 for x in xs), [floats(40)] * 34, [list(range(32)), [32, 33]]),
    ],
)
def test_groups(fn: Fn, avals: list[Any], expected: list[list[int]]) -> None:
    assert groups(fn, *avals) == expected


def test_what_is_computed_again_does_not_wait() -> None:
    """The second output reads x and recomputes exp; it needs no kernel before it."""
    cuts = find_cuts(normalized(lambda x: (jnp.exp(x), windows(jnp.exp(x)), jnp.exp(x).T * 2), BIG).jaxpr)
    levels = Levels(cuts)
    by_primitive = {eqn.primitive.name: level for eqn, level in levels.outside.items()}
    assert by_primitive == {"reduce_window_sum": 1}
    assert sorted(levels.of[root] for root in cuts.roots) == [0, 0]


def test_levels_with_chains_are_those_found_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chain is added to what is known; what does not wait for it is not looked at again."""
    lengths: list[int] = []

    def checked(cuts: Cuts, levels: Levels) -> list[list[Any]]:
        chains = chain_results(cuts, levels)
        anew = Levels(cuts, chains)
        assert (levels.of, levels.outside) == (anew.of, anew.outside)
        lengths.extend(map(len, chains))
        return chains

    def loss(layers: Any, x: Any) -> Any:
        for w, b in layers:
            x = jax.nn.gelu(x @ w + b)
        return jnp.mean(x * x)

    monkeypatch.setattr("jaxpr2triton.plan.partition.partition.chain_results", checked)
    j2t.transpile(jax.grad(loss), [(floats(64, 64), floats(64))] * 4, floats(128, 64))
    assert lengths and min(lengths) > 1


def test_loads_are_each_named_once() -> None:
    cuts = find_cuts(normalized(lambda x, y: jax.nn.softmax(x) * y + x, BIG, BIG).jaxpr)
    (space,) = cuts.spaces.values()
    assert set(loads_of(cuts, space)) == set(cuts.jaxpr.invars)
    assert len(loads_of(cuts, space)) == 2


def test_the_sum_of_an_image_is_shared_out_as_that_of_a_flat_array() -> None:
    """Its chunks are plain places, so that programs take one each and not eight that lie apart."""
    image, flat = (j2t.transpile(jnp.sum, floats(*shape)).kernels for shape in ((28, 28, 1, 128), (100352,)))
    assert [kernel.grid for kernel in image] == [kernel.grid for kernel in flat] == [(25, 1, 1), (1, 1, 1)]
    assert "tl.load(a_ptr + row * 4096 + k," in image[0].source
