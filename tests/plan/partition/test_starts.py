"""Kernels that differ in nothing but where they begin to read arrays are one, and each launch says where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t


def normal(seed: int, *shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 0.2)


def stacked(x: Any, ws: Any) -> Any:
    for n in range(ws.shape[0]):
        x = jnp.tanh(x @ ws[n])
    return jnp.sum(x)


def with_biases(x: Any, ws: Any, bs: Any) -> Any:
    for n in range(ws.shape[0]):
        x = jnp.tanh(x @ ws[n] + bs[n])
    return jnp.sum(x * x)


def from_both_ends(x: Any, ws: Any, vs: Any) -> Any:
    for n in range(ws.shape[0]):
        x = jnp.tanh((x @ ws[n]) * vs[-1 - n])
    return jnp.sum(x)


def in_one_axis(x: Any, ws: Any) -> Any:
    for n in range(12):
        x = jnp.sin(x @ ws[16 * n : 16 * (n + 1)])
    return jnp.sum(x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "stacked": (stacked, (normal(0, 16, 32), normal(1, 12, 32, 32))),
    "with biases": (with_biases, (normal(0, 16, 32), normal(1, 12, 32, 32), normal(2, 12, 32))),
    "from both ends": (from_both_ends, (normal(0, 16, 32), normal(1, 12, 32, 32), normal(2, 12, 16, 32))),
    "in one axis": (in_one_axis, (normal(0, 16, 16), normal(1, 192, 16))),
}


def told(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The arguments of all kernels that say where something begins."""
    inputs = (buffer.name for kernel in j2t.transpile(fn, *args).kernels for buffer in kernel.inputs)
    return {name for name in inputs if name.startswith("start")}


BACKENDS = [*((name, "interpret") for name in PROGRAMS), ("stacked", "machine")]


@pytest.mark.parametrize(("name", "backend"), BACKENDS)
def test_each_launch_reads_its_own_slice(name: str, backend: Any) -> None:
    fn, args = PROGRAMS[name]
    gradient = jax.value_and_grad(fn, tuple(range(len(args))))
    assert told(gradient, *args)
    found, expected = j2t.fuse(gradient, backend=backend)(*args), jax.jit(gradient)(*args)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_two_hundred_stacked_layers_are_few_kernels() -> None:
    shapes = jax.ShapeDtypeStruct((32, 64), np.float32), jax.ShapeDtypeStruct((200, 64, 64), np.float32)
    kernels = j2t.transpile(jax.grad(stacked, (0, 1)), *shapes).kernels
    assert len(kernels) > 600
    assert len(set(kernels)) < 20


@pytest.mark.parametrize(
    ("name", "names"), [("with biases", {"start"}), ("from both ends", {"start", "start_2", "start_3"})]
)
def test_what_begins_alike_everywhere_is_one_number(name: str, names: set[str]) -> None:
    fn, args = PROGRAMS[name]
    assert told(jax.grad(fn, (0, 1, 2)), *args) == names


def test_a_few_kernels_are_made_each() -> None:
    assert not told(jax.grad(stacked, (0, 1)), normal(0, 16, 32), normal(1, 3, 32, 32))


def test_no_slice_begins_where_no_thread_would_know_that_it_is_aligned() -> None:
    def fn(x: Any, ws: Any) -> Any:
        for n in range(12):
            x = jnp.sin(x @ ws[:, 16 * n : 16 * (n + 1)])
        return jnp.sum(x)

    assert not told(jax.grad(fn, (0, 1)), normal(0, 16, 16), normal(1, 16, 192))
