"""The loops of docs/loops.md: values and gradients, in the interpreter and compiled."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jaxpr2triton as j2t
from examples import loops

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "returns": (normal(40, 3), RNG.random((40, 3)) < 0.1),
    "resonator": (normal(70),),
    "elman": (normal(8, 8) / 4, normal(5, 8), normal(6, 5, 8)),
    "orbits": (1 + abs(normal(4, 3)), normal(4, 3) / 3),
    "settled": (normal(9),),
}


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_values(name: str, backend: str) -> None:
    function, args = getattr(loops, name), ARGUMENTS[name]
    program = j2t.transpile(function, *args)
    assert len(program.kernels) == 1 and not program.leftovers
    fused = j2t.fuse(function, backend=backend)
    np.testing.assert_allclose(fused(*args), jax.jit(function)(*args), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != "settled"])  # a `while` has no gradient
def test_gradients(name: str) -> None:
    function, args = getattr(loops, name), ARGUMENTS[name]
    places = [n for n, arg in enumerate(args) if arg.dtype == np.float32]

    def gradient(of: Any) -> Any:
        return jax.grad(lambda *args: (of(*args) ** 2).mean(), places)

    ours, theirs = gradient(j2t.fuse(function, backend="interpret"))(*args), gradient(jax.jit(function))(*args)
    for got, want in zip(ours, theirs):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
