"""Recurrent networks with `contractions="triton"`: what leaves their loops, what is multiplied in them, and how."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Kernel
from jaxpr2triton.launch.compile.triton_shim import triton_version
from jaxpr2triton.launch.cycles.model import cycles_of
from tests.loop_programs.recurrent import gru, lstm, rnn

NETWORKS = {"rnn": (rnn, 1), "gru": (gru, 3), "lstm": (lstm, 4)}
TOLERANCES = {jnp.float32: 1e-5, jnp.bfloat16: 4e-2}
SIZES = [(network, hidden, dtype) for network in NETWORKS for hidden in (16, 128, 256) for dtype in TOLERANCES]


def shapes(network: str, steps: int, batch: int, hidden: int, dtype: Any) -> tuple[Any, ...]:
    width = NETWORKS[network][1] * hidden
    sizes = {"w": (hidden, width), "u": (hidden, width), "b": (width,)}
    weights = {name: jax.ShapeDtypeStruct(each, dtype) for name, each in sizes.items()}
    return weights, *(jax.ShapeDtypeStruct(each, dtype) for each in ((steps, batch, hidden), (batch, hidden)))


def drawn(specs: Any) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda each: jnp.asarray(rng.standard_normal(each.shape) / 4, each.dtype), specs)


def states(network: str) -> Callable[..., Any]:
    return lambda *args: NETWORKS[network][0](*args)[1]


def loss(network: str) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        return sum((each.astype(jnp.float32) ** 2).mean() for each in jax.tree.leaves(NETWORKS[network][0](*args)))

    return jax.value_and_grad(total, (0, 1, 2))


def same(fn: Callable[..., Any], args: Any, dtype: Any, backend: str) -> None:
    widened = jax.tree.map(lambda each: each.astype(jnp.float32), args)
    with jax.default_matmul_precision("highest"):
        expected = jax.tree.leaves(jax.jit(fn)(*widened))
        found = jax.tree.leaves(j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args))
    for one, other in zip(found, expected, strict=True):
        one, other = (np.asarray(each, np.float64) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCES[dtype] * max(1e-2, np.abs(other).max()))


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("network", NETWORKS)
def test_values_and_gradients(network: str, dtype: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows are one block and a part of one, 24 numbers three quarters of their lanes."""
    monkeypatch.setenv("J2T_TARGET", "sm_90")
    args = drawn(shapes(network, 32, 9, 24, dtype))
    same(states(network), args, dtype, backend)
    same(loss(network), args, dtype, backend)


@functools.cache
def kernels(network: str, batch: int, hidden: int, dtype: Any, gradient: bool) -> tuple[Kernel, ...]:
    fn = (loss if gradient else states)(network)
    program = j2t.transpile(fn, *shapes(network, 512, batch, hidden, dtype), contractions="triton", for_target="sm_90")
    assert not program.leftovers
    return program.kernels


def with_loop(found: tuple[Kernel, ...]) -> list[str]:
    """The bodies of the loops over the steps."""
    parts = (re.split("for t(?:_round)? in ", kernel.source) for kernel in found)
    return [each[1] for each in parts if len(each) > 1]


@pytest.mark.parametrize("batch", [1, 64, 1024])
@pytest.mark.parametrize(("network", "hidden", "dtype"), SIZES)
def test_nothing_is_left_over(network: str, hidden: int, dtype: Any, batch: int) -> None:
    forward, both = (kernels(network, batch, hidden, dtype, gradient) for gradient in (False, True))
    assert len(forward) == 2
    (body,) = with_loop(forward)
    assert "w_ptr" not in body
    several = network != "rnn" and hidden == 128  # of 16, and of one matrix, either is chosen, and 256 do not fit
    if dtype is jnp.bfloat16 and (batch == 1 or several):
        assert all(("tl.dot(" in body) == (batch > 1) for body in with_loop((*forward, *both)))


def test_cycles_of_a_step() -> None:
    """Triton 3.9 makes these products of eight rows by groups of warps, and waits for each of the four."""
    *_, network = kernels("lstm", 64, 128, jnp.bfloat16, False)
    (loop,) = cycles_of(network, target_named("sm_90")).loops
    assert loop.steps == 512
    assert loop.cycles <= (1500 if triton_version().startswith("3.6") else 2900)
