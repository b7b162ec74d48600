"""Programs with convolutions and pools: values and gradients, nothing left to XLA, and how many kernels they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from tests.window_programs import PROGRAMS, WindowProgram, image, layer, lenet, numbers, parameters_of_lenet

EVERY = pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])


def value_and_gradients(program: WindowProgram) -> Any:
    def both(*args: Any) -> Any:
        made, back = jax.vjp(program.fn, *args)
        return made, back(jnp.cos(made))

    return both


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        size = max(float(np.abs(other).max()), 1e-3)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@EVERY
def test_values_and_gradients(program: WindowProgram, backend: str) -> None:
    args = program.args(np.random.default_rng(0))
    with jax.default_matmul_precision("highest"):
        both = value_and_gradients(program)
        ours = j2t.fuse(both, backend=backend, strict=True, contractions="triton")
        same(ours(*args), jax.jit(both)(*args))


@EVERY
def test_kernels(program: WindowProgram) -> None:
    args = program.args(np.random.default_rng(0))
    for fn, most in ((program.fn, program.kernels), (value_and_gradients(program), program.backward)):
        made = j2t.transpile(fn, *args, contractions="triton")
        assert len(made.kernels) == most and not made.leftovers


def test_lenet_at_its_size() -> None:
    """Of 128 images: the model by itself, and its value and gradients with respect to all parameters and the image."""
    rng = np.random.default_rng(0)
    args = parameters_of_lenet(rng), image(rng, 128, 28, 28, 1)
    forward = j2t.transpile(lenet, *args, contractions="triton")
    assert len(forward.kernels) <= 5 and not forward.leftovers
    both = j2t.transpile(jax.value_and_grad(lenet, (0, 1)), *args, contractions="triton")
    assert len(both.kernels) <= 20 and not both.leftovers


@pytest.mark.parametrize("batch", [100, 1000])
def test_a_layer_and_the_gradient_of_its_bias(batch: int) -> None:
    rng = np.random.default_rng(0)
    args = image(rng, batch, 28, 28, 1), numbers(rng, 5, 5, 1, 16), numbers(rng, 16)
    forward = j2t.transpile(layer, *args, contractions="triton")
    assert len(forward.kernels) == 1 and not forward.leftovers
    given = image(rng, batch, 24, 24, 16)
    gradient = j2t.transpile(lambda given: jax.vjp(lambda b: given * 0 + b, args[2])[1](given)[0], given)
    assert len(gradient.kernels) <= 2
    assert sum(kernel.bytes_read for kernel in gradient.kernels) < 1.1 * given.nbytes
