"""Buffers of a kernel's own lie along its lanes."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpr2triton as j2t

RNG = np.random.default_rng(0)


def circling(state: Any) -> Any:
    """Three coordinates that read each other, in variables; a point has its lane."""

    def step(s: Any, _: Any) -> tuple[Any, None]:
        x, y, z = s
        return jnp.stack([jnp.sin(y * z), x - 0.5 * z, x * y]), None

    return lax.scan(step, state, None, length=6)[0]


def pulled(states: Any, cotangents: Any) -> Any:
    return jax.vjp(jax.vmap(circling), states)[1](cotangents)


def mixing(states: Any, cotangents: Any) -> Any:
    """Coordinates are lanes themselves."""

    def steps(h: Any) -> Any:
        return lax.scan(lambda h, _: (jnp.sin(h - h.mean(1, keepdims=True)), None), h, None, length=6)[0]

    return jax.vjp(steps, states)[1](cotangents)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize(
    ("function", "count", "width", "lies"),
    [
        (pulled, 70, 3, (6, 3, 70)),
        (pulled, 1, 3, (6, 3, 1)),
        (mixing, 5, 40, (6, 5, 40)),
    ],
)
def test_lanes_are_neighbours(function: Any, count: int, width: int, lies: tuple[int, ...], backend: Any) -> None:
    args = [RNG.normal(size=(count, width)).astype(np.float32) for _ in range(2)]
    (kernel,) = j2t.transpile(function, *args).kernels
    assert {buffer.shape for buffer in kernel.kept} == {lies} or count == 1
    found = j2t.fuse(function, backend=backend)(*args)
    for one, other in zip(found, jax.jit(function)(*args)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_is_written_at_once_lies_together() -> None:
    kernel = j2t.transpile(pulled, *[jax.ShapeDtypeStruct((4096, 3), np.float32)] * 2).kernels[0]
    assert re.search(r"kept_ptr \+ t1? \* 12288 \+ row,", kernel.source)
    assert not re.search(r"kept_ptr.* row \* 3", kernel.source)
    assert "out_ptr + row * 3" in kernel.source  # what is the user's lies as the user says
