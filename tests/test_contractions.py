"""Contractions as kernels: values and gradients, what they are fused with, and what Triton makes of them."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpr2triton as j2t
from bench.contractions import at_full_size
from examples import contractions
from jaxpr2triton.errors import UserError
from jaxpr2triton.hardware import target_named
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.launch.compile.compile import asm, compile_kernel, resources
from jaxpr2triton.launch.compile.nvidia_tools import machine_code
from jaxpr2triton.launch.cycles.model import cycles_of
from jaxpr2triton.policy import DEFAULT_POLICY
from jaxpr2triton.report.slow_kernels import doubts_about
from tests.contraction import Contraction, widened
from tests.contraction_programs import PROGRAMS

SM_90 = target_named("sm_90")
UNITS = ("HGMMA", "HMMA", "IGMMA", "IMMA")  # what units for matrices do


def shapes(*specs: tuple[Any, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(sizes, dtype) for dtype, *sizes in specs]


def checked(program: Contraction, backend: str) -> None:
    fn, args = program.whole(), program.args()
    with jax.default_matmul_precision("highest"):
        expected = jax.tree.leaves(jax.jit(fn)(*jax.tree.map(widened, args)))
        found = jax.tree.leaves(j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(*args))
    for one, other, meant in zip(found, expected, jax.tree.leaves(jax.eval_shape(fn, *args)), strict=True):
        assert one.dtype == meant.dtype
        one, other = (np.asarray(each, np.float64) for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=0, atol=program.tolerance * max(1.0, np.abs(other).max(initial=0)))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_values(program: Contraction) -> None:
    checked(program, "interpret")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_compiled(program: Contraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every access is checked, and races."""
    monkeypatch.setenv("J2T_TARGET", "sm_90")
    checked(program, "machine")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kernels(program: Contraction) -> None:
    made = j2t.transpile(program.whole(), *program.args(), contractions="triton")
    assert not made.leftovers
    assert len(made.kernels) == program.kernels


def kernel_of(fn: Any, *args: Any) -> Any:
    (kernel,) = j2t.transpile(fn, *args, contractions="triton").kernels
    return kernel


def instructions(kernel: Any) -> list[str]:
    code, _ = machine_code(asm(kernel, SM_90, "ptx"), 90)
    return [match[1] for match in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_.]+)", code)]


BF16 = shapes((jnp.bfloat16, 1024, 512), (jnp.bfloat16, 512, 1024), (jnp.bfloat16, 1024))
F32 = shapes((jnp.float32, 1024, 512), (jnp.float32, 512, 1024))


def test_16_bits_are_multiplied_by_tensor_cores() -> None:
    kernel = kernel_of(contractions.linear_gelu, *BF16)
    found = instructions(kernel)
    assert any(name.startswith("HGMMA") for name in found)
    assert any(name.startswith("LDGSTS") for name in found)
    assert resources(compile_kernel(kernel, SM_90)).spill_stores == 0


@pytest.mark.parametrize("name", ["attention_gradients", "losses_gradients"])
def test_what_is_made_of_several_arrays_fits_an_h100(name: str) -> None:
    """Into registers, and the blocks that are under way into shared memory."""
    program = at_full_size(next(each for each in PROGRAMS if each.name == name))
    for kernel in j2t.transpile(program.whole(), *program.sizes(), contractions="triton").kernels:
        assert resources(compile_kernel(kernel, SM_90)).spill_stores == 0


@pytest.mark.parametrize("name", ["bf16", "eight_bits"])
def test_full_sizes_are_multiplied_by_tensor_cores(name: str) -> None:
    """Each kernel of these programs multiplies; their factors are on the way while others are multiplied."""
    program = at_full_size(next(each for each in PROGRAMS if each.name == name))
    for kernel in j2t.transpile(program.whole(), *program.sizes(), contractions="triton").kernels:
        found = instructions(kernel)
        assert any(name.startswith(UNITS) for name in found)
        assert any(name.startswith("LDGSTS") for name in found)
        assert resources(compile_kernel(kernel, SM_90)).spill_stores == 0


@pytest.mark.parametrize(("precision", "on_tensor_cores"), [("highest", False), (None, True), ("high", True)])
def test_f32_is_as_exact_as_asked_for(precision: str | None, on_tensor_cores: bool) -> None:
    kernel = kernel_of(lambda x, w: jnp.dot(x, w, precision=precision), *F32)
    found = instructions(kernel)
    assert any(name.startswith(UNITS) for name in found) is on_tensor_cores
    assert resources(compile_kernel(kernel, SM_90)).spill_stores == 0


def test_only_nvidia_has_products_of_less() -> None:
    made = j2t.transpile(jnp.matmul, *F32, contractions="triton", for_target="gfx942")
    assert "input_precision='ieee'" in made.source


def test_distances_are_little_but_their_arithmetic() -> None:
    """Two instructions for each triple are the least: a difference, and a product that is added."""
    kernel = kernel_of(contractions.distances, *shapes((jnp.float32, 784, 1024), (jnp.float32, 784, 128)))
    results = math.prod(axis.block for axis in kernel.axes) / (SM_90.warp_size * kernel.num_warps)
    (loop,) = cycles_of(kernel, SM_90).loops
    assert loop.instructions / results < 2.3


# Instructions of a thread for each pair of points, no more than so many.
OF_A_PAIR = {
    **{"bodies": 34, "nearest": 15, "chamfer": 21, "chamfer_gradients": 60},
    **{"gaussian_product": 24, "gaussian_gradients": 75},
}


@pytest.mark.parametrize("name", OF_A_PAIR)
def test_pairs_take_few_instructions(name: str) -> None:
    """Each program has points of both sides, and a variable for each of the few coordinates."""
    program = at_full_size(next(each for each in PROGRAMS if each.name == name))
    found = []
    for kernel in j2t.transpile(program.whole(), *program.sizes(), contractions="triton").kernels:
        if any(axis.role is Role.LOOP for axis in kernel.axes):
            pairs = math.prod(axis.block for axis in kernel.axes) / (SM_90.warp_size * kernel.num_warps)
            found += [loop.instructions / pairs for loop in cycles_of(kernel, SM_90).loops]
            assert not any(axis.role is Role.LANE and axis.size < 8 for axis in kernel.axes)
    assert found and max(found) <= OF_A_PAIR[name]


PAIRWISE = ("distances", "gaussian_product", "nearest", "logsumexp_of_distances", "bodies", "chamfer")


WRITTEN = "sums of few terms that are compared with their copies are written, however many pairs they are of"
SOUGHT = pytest.mark.xfail(strict=True, reason=WRITTEN)


@pytest.mark.parametrize(
    "name",
    [*PAIRWISE, "distances_gradients", "gaussian_gradients", pytest.param("chamfer_gradients", marks=SOUGHT)],
)
def test_what_pairs_make_is_nowhere(name: str) -> None:
    """No array that a kernel writes is larger than what the program is given, or returns."""
    program = at_full_size(next(each for each in PROGRAMS if each.name == name))
    fn, args = program.whole(), program.sizes()
    made = j2t.transpile(fn, *args, contractions="triton")
    largest = max(each.size for each in jax.tree.leaves((args, jax.eval_shape(fn, *args))))
    written = [buffer for kernel in made.kernels for buffer in (*kernel.outputs, *kernel.kept)]
    assert written and all(math.prod(buffer.shape) <= largest for buffer in written)


@pytest.mark.parametrize("backend", ["interpret", "machine"])
def test_programs_walk_down_bands_of_blocks(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last band has fewer rows of blocks; what one side makes alone is stored by one program of each row."""

    def fn(x: Any, w: Any) -> Any:
        return jnp.maximum(x @ w, 0.5), x.sum(1)

    rng = np.random.default_rng(7)
    x, w = rng.uniform(size=(1100, 20)).astype(np.float32), rng.uniform(size=(20, 1200)).astype(np.float32)
    monkeypatch.setenv("J2T_TARGET", "sm_90")
    source = j2t.transpile(fn, x, w, contractions="triton", for_target="sm_80").source
    assert "tl.swizzle2d" in source and ", down bands of 8 blocks)" in source
    product, sums = j2t.fuse(fn, backend=backend, contractions="triton", strict=True)(x, w)
    np.testing.assert_allclose(product, np.maximum(x @ w, 0.5), rtol=1e-3)
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_at_its_size_no_kernel_leaves_the_device_idle(program: Contraction) -> None:
    full = at_full_size(program)
    made = j2t.transpile(full.whole(), *full.sizes(), contractions="triton", for_target="sm_90")
    assert not [doubt for kernel in made.kernels for doubt in doubts_about(kernel, DEFAULT_POLICY)]


def test_blocks_of_rows_are_no_larger_than_groups() -> None:
    """A larger one would be multiplied with the matrices of several."""
    program = at_full_size(next(each for each in PROGRAMS if each.name == "of_many_groups"))
    *_, kernel = j2t.transpile(program.whole(), *program.sizes(), contractions="triton").kernels
    (rows,) = (axis.block for axis in kernel.axes if axis.name == "m")
    assert rows == 32


def test_nothing_between_is_written() -> None:
    kernel = kernel_of(contractions.distances, *shapes((jnp.float32, 784, 1024), (jnp.float32, 784, 128)))
    assert kernel.bytes_written == 4 * 1024 * 128
    assert kernel.bytes_read == 4 * 784 * (1024 + 128)


def test_xla_has_them_where_that_is_asked_for() -> None:
    made = j2t.transpile(lambda x, w: jnp.tanh(x @ w), *F32, contractions="xla")
    (leftover,) = made.leftovers
    assert leftover.why == 'contractions="xla" leaves them to a library'
    assert leftover.takes == 'contractions="triton" makes kernels of them'


def test_a_factor_that_is_an_outer_product_is_multiplied_as_a_matrix() -> None:
    """Its elements sum nothing, and are made where they are read; without factors they tie programs together."""
    arrays = shapes((jnp.float32, 1024, 16), (jnp.float32, 1024, 16), (jnp.float32, 128, 16, 16))
    source = kernel_of(lambda x, y, w: jnp.einsum("bi,oij,bj->bo", x, w, y), *arrays).source
    assert "tl.dot(y * x, w" in source


def test_an_unknown_choice() -> None:
    with pytest.raises(UserError, match="contractions='cutlass' is not a choice\n  try  one of auto, triton, xla"):
        j2t.fuse(jnp.matmul, contractions="cutlass")


def test_an_algorithm_that_triton_has_not() -> None:
    algorithm = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3
    made = j2t.transpile(lambda x, w: jnp.dot(x, w, precision=algorithm), *F32, contractions="triton")
    (leftover,) = made.leftovers
    assert "no kernel multiplies with the algorithm" in leftover.why


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "gfx90a", "gfx942"])
@pytest.mark.parametrize("args", [F32, BF16[:2]], ids=["f32", "bf16"])
def test_every_device_has_them(target: str, args: list[Any]) -> None:
    (kernel,) = j2t.transpile(jnp.matmul, *args, contractions="triton", for_target=target).kernels
    assert compile_kernel(kernel, target_named(target))


def test_a_perceptron_at_its_size() -> None:
    """Of 1024 images: forward, all that follows from a row by the programs that have it; a gradient is a kernel."""
    widths = shapes(*((jnp.float32, *sizes) for sizes in ((784, 32), (32,), (32, 10), (10,), (1024, 784))))
    args = widths[:4], widths[4]
    both = j2t.transpile(jax.value_and_grad(contractions.perceptron, (0, 1)), *args, contractions="triton")
    assert len(both.kernels) == 5 and not both.leftovers
    assert both.kernels[0].bytes_written == 4 * 1024 * (32 + 10 + 32)


@pytest.mark.parametrize("fn", [jnp.argmax, jnp.argmin])
def test_places_in_long_columns_of_a_product(fn: Any) -> None:
    """What is looked for in two steps is a place: sums of such a result are made by blocks, places are not."""
    rng = np.random.default_rng()
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4096, 32), (32, 64)))

    def places(x: Any, w: Any) -> Any:
        return fn((x @ w) * 0.5, 0), x @ w

    found = j2t.fuse(places, backend="interpret", contractions="triton", strict=True)(x, w)
    np.testing.assert_array_equal(found[0], fn(found[1], 0))
    np.testing.assert_allclose(found[1], x @ w, atol=1e-4)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("kind", ["i8", "f64"])
def test_sums_that_are_not_of_f32_go_on_in_their_own_type(target: str, kind: str) -> None:
    """Triton takes what a product is added to for f32, unless it is told."""
    with jax.enable_x64(kind == "f64"):
        dtype, wide = {"i8": (jnp.int8, jnp.int32), "f64": (jnp.float64, jnp.float64)}[kind]
        args = shapes((dtype, 128, 512), (dtype, 512, 128))
        (kernel,) = j2t.transpile(
            lambda x, w: jax.lax.dot(x, w, preferred_element_type=wide), *args, contractions="triton", for_target=target
        ).kernels
    assert compile_kernel(kernel, target_named(target))


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_f64_is_compiled_in_chains(target: str) -> None:
    with jax.enable_x64(True):
        args = shapes(*((jnp.float64, *sizes) for sizes in ((64, 32), (32, 32), (32, 32))))
        made = j2t.transpile(lambda x, a, b: jnp.tanh(x @ a) @ b, *args, contractions="triton", for_target=target)
    assert made.kernels and not made.leftovers
    for kernel in made.kernels:
        assert compile_kernel(kernel, target_named(target))


def test_attention_of_a_few_keys_is_one_kernel_if_asked_for() -> None:
    """By default a library multiplies where it takes as long, with its launch; `explain` tells both times."""
    shape = jax.ShapeDtypeStruct((2, 128, 4, 64), jnp.float32)
    whole = j2t.transpile(jax.nn.dot_product_attention, shape, shape, shape, contractions="triton")
    assert len(whole.kernels) == 1 and not whole.leftovers
    by_default = j2t.transpile(jax.nn.dot_product_attention, shape, shape, shape)
    assert len(by_default.kernels) + len(by_default.leftovers) <= 3
    assert all("with its launch a library takes about" in str(left.why) for left in by_default.leftovers)
