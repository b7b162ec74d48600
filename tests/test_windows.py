"""Programs with convolutions and pools: values and gradients, nothing left to XLA, and how many kernels they are."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.windows import everything
from jaxpr2triton.hardware import TARGETS
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from tests.window_programs import (
    PROGRAMS,
    WindowProgram,
    convolved,
    image,
    layer,
    lenet,
    numbers,
    parameters_of_lenet,
    pooled,
)

EVERY = pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        size = max(float(np.abs(other).max()), 1e-3)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
@EVERY
def test_values_and_gradients(program: WindowProgram, backend: str) -> None:
    args = program.args(np.random.default_rng(0))
    with jax.default_matmul_precision("highest"):
        both = program.with_gradients()
        ours = j2t.fuse(both, backend=backend, strict=True, contractions="triton")
        same(ours(*args), jax.jit(both)(*args))


@EVERY
def test_kernels(program: WindowProgram) -> None:
    args = program.args(np.random.default_rng(0))
    for fn, most in ((program.fn, program.kernels), (program.with_gradients(), program.backward)):
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
    assert sum(kernel.bytes_read + kernel.bytes_written for kernel in both.kernels) < 42e6


@pytest.mark.compile
def test_many_channels_on_an_h100() -> None:
    """Units for matrices, asynchronous copies of 16 bytes, and no spills."""
    sizes = jax.ShapeDtypeStruct((32, 28, 28, 128), jnp.bfloat16), jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.bfloat16)
    (kernel,) = j2t.transpile(convolved, *sizes, contractions="triton", for_target="sm_90").kernels
    text = asm(kernel, TARGETS["sm_90"], "ptx")
    assert "wgmma.mma_async" in text and re.search(r"cp\.async\.c[ga]\.shared\.global .*, 0x10", text)
    assert resources(compile_kernel(kernel, TARGETS["sm_90"])).spill_stores == 0


@pytest.mark.compile
@pytest.mark.parametrize("name,fn,sizes", list(everything()), ids=lambda value: value if isinstance(value, str) else "")
def test_no_spills_on_an_h100(name: str, fn: Any, sizes: Any) -> None:
    made = j2t.transpile(fn, *sizes, contractions="triton", for_target="sm_90")
    taken = {kernel.name: resources(compile_kernel(kernel, TARGETS["sm_90"])) for kernel in made.kernels}
    assert not {kernel: each.spills for kernel, each in taken.items() if each.spills}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_each_contraction_of_a_block_has_blocks(layout: str) -> None:
    """Two convolutions and the gradients of images and of kernels, beside sums over all places in other kernels."""
    name = f"residual {layout}: with gradients"
    fn, sizes = next((fn, sizes) for title, fn, sizes in everything() if title == name)
    made = j2t.transpile(fn, *sizes, contractions="triton", for_target="sm_90")
    products = [kernel for kernel in made.kernels if "tl.dot(" in kernel.source]
    assert len(products) >= 6
    assert all(math.prod(kernel.grid) >= 132 for kernel in products)


def test_the_first_layer_of_lenet_multiplies_as_much_as_it_has_to() -> None:
    """25 times for each of its results, of which there are 24 by 24 by 6; the other computations are few."""
    rng = np.random.default_rng(0)
    x, w, b = image(rng, 128, 28, 28, 1), numbers(rng, 5, 5, 1, 6), numbers(rng, 6)
    fn = lambda x, w, b: pooled(jax.nn.relu(convolved(x, w, padding="VALID") + b))  # noqa: E731
    (kernel,) = j2t.transpile(fn, x, w, b, contractions="triton", strict=True).kernels
    results = 128 * 24 * 24 * 6
    assert 49 * results <= kernel.flops <= 54 * results
    code, _ = machine_code(asm(kernel, TARGETS["sm_90"], "ptx"), 90)
    threads = math.prod(kernel.grid) * kernel.num_warps * 32
    assert threads * len(re.findall(r"\b(?:FFMA|FMUL)\b", code)) == 25 * results


def test_the_gradient_of_a_kernel_is_shared_out_by_images() -> None:
    """In a fixed order: the terms are those of 48 images and of 16 by 16 places in each."""
    rng = np.random.default_rng(0)
    x, w, given = image(rng, 48, 16, 16, 4), numbers(rng, 3, 3, 4, 8), image(rng, 48, 16, 16, 8)

    def back(x: Any, given: Any) -> Any:
        return jax.linear_transpose(lambda w: convolved(x, w), w)(given)[0]

    products, _ = j2t.transpile(back, x, given, contractions="triton", strict=True).kernels
    assert products.grid[2] == 24
    with jax.default_matmul_precision("highest"):
        same(j2t.fuse(back, backend="interpret", contractions="triton")(x, given), jax.jit(back)(x, given))


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
